"""All that was chosen by trying, in one record. Shares are of a search's work unless they say of what."""

from dataclasses import dataclass


@dataclass(frozen=True)
class WalkStyle:
    """How a walk of ruin and recreate goes. Heat and weight are in units that fit any problem."""

    hot: float
    cold: float
    """Worsening that is accepted with probability 1 / e at the start and at the end, in mean times of an op."""
    pool: int = 12
    """Most drops that are compared before one is made."""
    most: int = 12
    """Most ops that one drop runs again."""
    weight: float = 10.0
    """What all of the room in excess at one step costs while the order does not fit, in times of the program."""


_SHORT = (0.025, WalkStyle(hot=1.0, cold=0.01, pool=3, most=40))
_LONG = tuple(
    (0.1, WalkStyle(hot=1.0, cold=0.01, pool=pool, most=most))
    for pool, most in ((3, 40), (12, 40), (3, 40), (40, 40), (3, 100))
)


@dataclass(frozen=True)
class Settings:
    """What the search takes for small, near, enough; and what its parts charge for their work."""

    # time
    given_out: float = 0.65
    """Share of a time limit that is given out as work; the rest is for machines that are slower or busy."""
    guard: float = 0.95
    """Share of a time limit at which the clock cuts."""
    met: float = 1e-5
    """Share of the program's time within which a bound and a plan count as equal."""
    wide: float = 0.03
    """Gap, as a share of the program's time, from which on another kind of order is tried."""
    apart: float = 0.005
    """Gap that is wide in a program of many ops that is no chain of blocks, and from which the spine is tried."""
    small: int = 400
    """Most ops of a program for which every instant is tried, and ever more of them together."""
    large: int = 4000
    """Most ops of a program for which several instants pay, and the repair of many nested plans."""
    long: int = 4
    """Lengths of the program from which on an order is taken as it is: pruning it would take all the work."""
    kept_for_bounds: float = 0.15
    """Share that is kept for the bound by prices; a third of it where one instant's order is near the budget."""
    left_for_more: float = 0.3
    """Share that must be left for another round of improvement."""

    # refusing
    traced_ops: int = 12
    """Ops of which it is tried to prove that their inputs cannot be at hand together."""
    traced_sets: int = 50
    """Sets of storages that such a proof may look at."""
    floor_steps: int = 12
    """Budgets that are tried for the least peak, where a budget is refused."""
    floor_walk: float = 0.02
    """Share for a walk towards one of them, where repair does not get there."""
    exact_ops: int = 14
    """Most ops that are searched exhaustively."""
    exact_states: int = 80_000
    """Most states that this looks at."""
    exact_state: float = 5e-5
    """Work of one state."""

    # instants
    ranked: int = 80
    """Instants of a small program that are ranked by their linear relaxation."""
    ranked_large: int = 8
    """The same of a program that is not small."""
    solved: int = 2
    """Of these, how many are solved as integer programs."""
    comparable: float = 0.97
    """Share of the first one's relaxation that the second must reach for that."""
    solving: float = 0.08
    """Share of the work left for one of them."""
    near: float = 0.5
    """Share of the room by which one instant's order may exceed it for a few more instants to be likely to help."""
    more_instants: float = 0.12
    """Share of the work left for one model of several instants."""
    more_rounds: int = 20
    """Times that instants are added in a small program."""
    more_rounds_large: int = 8
    """The same in a program that is not small."""
    more_far: float = 0.05
    """Share of the work left that ever more instants may take where the best plan is far from the bound."""

    # repair and pruning
    repair_changes: int = 30_000
    """Changes looked at before a repair gives up."""
    repair_far: float = 0.3
    """Share of the room from which on an order that is over it gets a tenth of that, once there is a plan."""
    repair_share: float = 0.15
    """Share of the work left after which a repair gives up too."""
    repair_depths: tuple[int, ...] = (0, 2, 8, 40)
    """How many missing ops may run again together with the one that is wanted."""
    prune_rounds: int = 3
    """Removals that are tried: the first by time, the others shuffled."""
    prune_share: float = 0.1
    """Share of the work left that one of them may take."""

    # nested blocks
    few_blocks: int = 32
    """Most blocks of the first table."""
    many_blocks: int = 64
    """Most blocks of the second, which is made where half of the work is left."""
    room_percents: tuple[int, ...] = (100, 98, 102, 104, 106, 109, 112, 116)
    """Parts of the room that are read off, in per cent; three of them in a large program, whose repair takes long."""
    byte_prices: tuple[float, ...] = (1e4, 4.0, 2.5, 1.6, 1.0, 0.6, 0.4, 0.25, 0.12, 0.0)
    """Prices of a byte by which a block keeps values, as multiples of the one at the peak."""
    nested_left: float = 0.6
    """Share of the work left that the tables leave to what comes after them."""
    finer: tuple[int, ...] = (8, 4, 2)
    """Parts of a per cent that a table may have per level."""
    finer_share: float = 0.1
    """Share of the work left that it may take for them."""
    missing: float = 0.3
    """Share of the bytes that coming back to a block takes that may be missing: repair makes up for it."""
    meet: int = 14
    """Most ops that make or read one value of a block; beyond, an integer program is used."""
    same_block: float = 0.1
    """Share by which the times of two blocks may differ to count as the same."""
    same_op: float = 0.3
    """Share by which the time of one op may differ between them."""
    same_small: float = 0.02
    """Share of a block's time below which nobody looks."""
    mostly_unlike: float = 0.5
    """Share of blocks unlike all others from which on each stands for itself."""

    # stages
    stages: tuple[tuple[int, float], ...] = ((16, 0.2), (8, 0.08), (24, 0.08))
    """How many, and the share of the work left for them."""

    # walks
    walk: float = 0.14
    """Share for one walk where the gap is wide."""
    walk_little: float = 0.03
    """Share for one walk where it is not."""
    walk_first: float = 0.25
    """Share for walks towards a first plan."""
    onward: tuple[WalkStyle, ...] = (
        WalkStyle(hot=0.6, cold=0.006),
        WalkStyle(hot=0.2, cold=0.004),
        WalkStyle(hot=1.5, cold=0.01),
    )
    """How walks from the best order go, one after the other."""
    anew: tuple[WalkStyle, ...] = (
        WalkStyle(hot=10.0, cold=0.01, most=40),
        WalkStyle(hot=1.0, cold=0.01, pool=3, most=40),
        WalkStyle(hot=3.0, cold=0.01),
    )
    """How walks from the program go: hot, since where they begin is of no worth."""
    first: tuple[tuple[float, WalkStyle], ...] = (*[_SHORT] * 20, *_LONG)
    """Walks towards a first plan with their shares of the work: many short ones, then longer ones."""
    from_least: int = 4
    """One of so many of these begins from the order with the least peak, the others from the program."""
    seeds: int = 1000
    """Between the seeds of two walks: a walk takes one for each part of its work."""
    walk_part: float = 0.1
    """Work after which a walk asks whether there is time left."""
    walk_longest: int = 4
    """Longest order that is walked through, in lengths of the program, unless it begins longer."""
    walk_runs: int = 32
    """Most runs of one op, unless an order begins with more."""
    walk_edits: int = 512
    """Runs put in or taken out in one move at most, beside those for what one drop may run."""
    walk_edits_each: int = 8
    """The same for each op that one drop may run."""
    ruin_draws: int = 30
    """Steps that are drawn at most to find a run that can be taken out."""
    ruin_runs: tuple[int, ...] = (1, 1, 1, 1, 2, 2, 4, 8)
    """Runs that are taken out in a move; each as likely as any other."""
    ruin_widths: tuple[int, ...] = (4, 4, 4, 20, 20, 20, 100, 100, 100)
    """Steps from the first of them within which the others are drawn."""
    drops: int = 4
    """Values that may be dropped to make the order fit again, beyond two for each run that was taken out."""
    drops_unfit: int = 60
    """Values that may be dropped in one move while the order does not fit."""
    early: float = 0.3
    """How often a value is made again earlier than right before its read."""
    early_unfit: float = 0.1
    """The same while the order does not fit."""
    rekeyed: int = 200
    """Moves after which steps get new keys."""
    living_on: float = 0.9
    """Most of a dropped value's bytes that its inputs may take in its place, where they live on."""
    behind_read: float = 0.5
    """How often a value that is made again early is made behind a read of one of its inputs."""
    drop_noise: float = 2.0
    """The price of a drop is multiplied by one to one plus this, so that other drops come first each time."""
    drop_draws: int = 100
    """Values that are drawn at most for a drop; most are not idle there."""
    drop_draws_each: int = 20
    """The same for each more that is to be compared."""
    walk_moved: float = 6e-10
    """Work of moving or looking at one element of the order."""
    walk_edited: float = 2.5e-6
    """Work of an edit beyond what it moves."""
    walk_looked: float = 2.5e-8
    """Work of looking at a value that could be dropped, per op that would run again and runs that ops have."""

    # ranges
    patience: int = 40
    """Ranges without a gain before improvement ends."""
    together: float = 0.2
    """Share of the work left after which all values together are not begun again."""
    cuts: int = 16
    """Places of the program at which what an order stores is decided anew."""
    horizon: int = 2
    """Stages before its need in which an op of a range may run again."""
    range_seconds: float = 1.5
    """Work for one range."""
    together_seconds: float = 6.0
    """Work for all values together."""

    # the bound by prices
    first_instants: int = 6
    """Instants to begin with."""
    most_instants: int = 40
    """Instants at which it ends."""
    price_rounds: int = 60
    """Cutting planes for one set of instants."""
    price_close: float = 2e-4
    """Share of the bound within which prices count as the best."""
    price_cheap: float = 1e-3
    """Share of all prices below which an instant is given up."""
    widest: int = 1 << 20
    """Most entries of a table."""

    # the bound along the spine
    cells: tuple[int, ...] = (120, 240, 480)
    """Cells for the bytes of the room, ever finer."""
    cells_near: float = 0.9
    """Share of the best bound that cells must reach for finer ones to be tried."""
    links: tuple[int, int] = (2, 200)
    """Links without which there is nothing to group, and beyond which too much is lost from link to link."""
    link_ops: int = 60
    """Most ops of a link: longer ones (all of attention, a dense block) are always too tangled."""
    link_choices: int = 300_000
    """Choices that may be looked at for one op; with more, ops of a link touch each other too much."""
    spine_share: float = 0.3
    """Share of the work left that the choices of all links may take."""
    spine_dropped: int = 4
    """Values of backward that may be dropped at a start: the largest."""
    negligible: float = 1 / 2000
    """Share of the room below which a storage counts nothing."""
    spine_percents: tuple[int, ...] = (100, 97, 93)
    """Per cent of the room for which the bound is asked what it stores."""

    # swaps
    swap_alone: float = 0.35
    """Share of the time limit for planning without swaps."""
    swap_choosing: float = 0.15
    """Share for choosing swaps and for the bound."""
    swap_first: float = 0.6
    """Of what is left, for planning around the cheapest choice; the others get as much of the rest in turn."""
    swap_lanes: tuple[float, ...] = (0.9, 0.6)
    """Shares of a lane's time that are given to swaps: nearly all, and less where that leaves too little."""
    swap_same: float = 0.15
    """Two choices are one where they differ in no larger share of their swaps."""
    swap_windows: int = 24
    """Windows of time on each side of the instant; each is a row of the program."""

    # the frontier
    halvings: int = 3
    """Steps between the lowest budget that was kept and the highest that was not."""

    # what work takes, in seconds of a modest machine
    step: float = 1e-6
    """Looking at one step of an order; many parts charge multiples of it."""
    fewest_asks: int = 8
    """Times that HiGHS may ask before an integer program is cut, however little work is left."""


SETTINGS = Settings()
