"""All that was chosen by trying, in one record. Shares are of a search's work unless they say of what."""

from dataclasses import dataclass
from typing import NamedTuple


class WalkStyle(NamedTuple):
    """How a walk of ruin and recreate goes. Heat and weight are in units that fit any problem."""

    # Worsening that is accepted with probability 1 / e at the start, in mean times of an op
    hot: float
    cold: float  # The same at the end
    pool: int = 12  # Most drops that are compared before one is made
    most: int = 12  # Most ops that one drop runs again
    # What all of the room in excess at one step costs while the order does not fit, in times of the program
    weight: float = 10.0


_SHORT = (0.025, WalkStyle(hot=1.0, cold=0.01, pool=3, most=40))
_LONG = tuple(
    (0.1, WalkStyle(hot=1.0, cold=0.01, pool=pool, most=most))
    for pool, most in ((3, 40), (12, 40), (3, 40), (40, 40), (3, 100))
)


@dataclass(frozen=True)
class Charges:
    """What parts charge for their work, in times of looking at one step of an order; fitted on a modest machine."""

    lifetimes: float = 2.0  # A step of an order whose instances are listed with their readers
    built: float = 2.0  # A step of an order that is built from a decision
    policy: float = 50.0  # An op of the program in `chen` or `mutwo`
    model_entry: float = 1.5  # An entry of an integer program of instants
    # A change that repair looks at: by itself, per op that would run again, per step whose bytes change
    changed: tuple[float, float, float] = (20.0, 4.0, 3e-3)
    removed: tuple[float, float] = (4.0, 1e-3)  # A run that pruning tries to take out: by itself, per step of the order
    compared: float = 6.0  # An op of the program whose block is compared with others
    option: float = 12.0  # An op of a block for which one way of saving is worked out
    value: tuple[float, float] = (20.0, 2e-3)  # A value of a block: by itself, per entry of its table
    passed: float = 0.5  # An op of a block, per pair of ways to save before and after a pass
    nested_row: float = 100.0  # A row of the nested table and a way of saving
    nested_entry: float = 2.5e-3  # A level of the nested table, a split and a pair of ways
    variable: float = 8.0  # Choosing a variable to eliminate
    eliminated: tuple[float, float] = (7.0, 1e-3)  # A table in an elimination: by itself, per entry
    priced: float = 20.0  # An op or a storage, when instants get prices
    price: tuple[float, float] = (16.0, 1e-3)  # A storage at given prices: by itself, per entry of its table
    label: float = 2.0  # A choice of a link with one more op labelled
    combined: float = 5.5e-3  # A state along the spine with one choice of the next link
    sifted: float = 2e-2  # A cell whose states are compared
    retraced: float = 5e-3  # A cell looked at on the way back along the spine

    # --- HiGHS, in seconds ---
    solve: float = 1e-3  # Beginning any solve
    linear_entry: float = 1.1e-6  # An entry of a linear program
    linear_pivot: float = 1.5e-9  # A simplex iteration, per entry of a linear program
    linear_iteration: float = 1e-6  # The same by itself; only where it is guessed how many there may be
    pivot: float = 2e-9  # A simplex iteration, per entry of an integer program
    pivot_row: float = 3e-8  # The same, per row
    root: float = 0.25  # Iterations of the root, per row: those beyond, of cuts and heuristics, take longer
    beyond_root: float = 3e-4  # How much longer each of them takes
    ask: float = 1.5e-3  # A time that HiGHS asks whether to go on
    ask_entry: float = 2e-7  # The same, per entry
    # What is taken for one such time where it is guessed how many there may be: by itself, per entry
    asks: tuple[float, float] = (2e-3, 1.8e-6)
    # An entry of the program that finds prices: by itself, per simplex iteration
    planes: tuple[float, float] = (1e-6, 1e-9)


@dataclass(frozen=True)
class Settings:
    """What the search takes for small, near, enough; and what its parts charge for their work."""

    # --- time ---
    # Share of a time limit that is given out as work; the rest is for machines that are slower or busy
    given_out: float = 0.65
    guard: float = 0.95  # Share of a time limit at which the clock cuts
    met: float = 1e-5  # Share of the program's time within which a bound and a plan count as equal
    met_again: float = 1.01  # Times that share, where a solver that was asked for it may have ended
    wide: float = 0.03  # Gap, as a share of the program's time, from which on another kind of order is tried
    # Gap that is wide in a program of many ops that is no chain of blocks, and from which the spine is tried
    apart: float = 0.005
    small: int = 400  # Most ops of a program for which every instant is tried, and ever more of them together
    large: int = 4000  # Most ops of a program for which several instants pay, and the repair of many nested plans
    long: int = 4  # Lengths of the program from which on an order is taken as it is: pruning it would take all the work
    kept_for_bounds: float = 0.15  # Share that is kept for the bound by prices
    kept_for_bounds_near: float = 0.05  # The same where one instant's order is near the budget
    left_for_more: float = 0.3  # Share that must be left for another round of improvement
    used_up: float = 0.2  # Share below which what is left counts as none: the search was stopped by its limit
    # Seconds of work that must be left to begin an integer program of several instants, or a bound by prices
    worth_solving: float = 1.0

    # --- refusing ---
    traced_ops: int = 12  # Ops of which it is tried to prove that their inputs cannot be at hand together
    traced_sets: int = 50  # Sets of storages that such a proof may look at
    floor_steps: int = 12  # Budgets that are tried for the least peak, where a budget is refused
    floor_left: float = 0.1  # Share that must be left for another one
    floor_walk: float = 0.02  # Share for a walk towards one of them, where repair does not get there
    exact_ops: int = 14  # Most ops that are searched exhaustively
    exact_states: int = 80_000  # Most states that this looks at
    exact_state: float = 5e-5  # Work of one state

    # --- instants ---
    ranked: int = 80  # Instants of a small program that are ranked by their linear relaxation
    ranked_large: int = 8  # The same of a program that is not small
    ranking_seconds: float = 2.0  # Work for one such relaxation
    # Of a large program also its highest positions are ranked: the fewest, and ops of the program for all of them
    highest: tuple[int, int] = (3, 16_000)
    solved: int = 2  # Of these, how many are solved as integer programs
    comparable: float = 0.97  # Share of the first one's relaxation that the second must reach for that
    solving: float = 0.08  # Share of the work left for one of them
    gap_one: float = 1e-5  # Relative gap at which the integer program of one instant counts as solved
    gap: float = 1e-4  # The same of several instants
    price_step: int = 50  # Parts of the room: by one of them the budget is lowered to see what a byte costs
    price_seconds: float = 5.0  # Work for a relaxation that this takes
    # Share of the room by which one instant's order may exceed it for a few more instants to be likely to help
    near: float = 0.5
    more_instants: float = 0.12  # Share of the work left for one model of several instants
    more_rounds: int = 20  # Times that instants are added in a small program
    more_rounds_large: int = 8  # The same in a program that is not small
    more_at_once: int = 2  # Instants that are added at a time in a small program; in others one
    more_apart: int = 50  # Parts of the program: instants that are added at a time are further apart than one of them
    # Share of the work left that ever more instants may take where the best plan is far from the bound
    more_far: float = 0.05

    # --- repair and pruning ---
    repair_changes: int = 30_000  # Changes looked at before a repair gives up
    repair_changes_far: int = 3_000  # The same of an order that is far over the budget, once there is a plan
    repair_far: float = 0.3  # Share of the room from which on it counts as far over
    repair_share: float = 0.15  # Share of the work left after which a repair gives up too
    # How many missing ops may run again together with the one that is wanted
    repair_depths: tuple[int, ...] = (0, 2, 8, 40)
    # Cheapest changes that are tried one by one where those that together free enough do not help
    repair_single: int = 6
    # Added to times: of two changes that cost nothing, the one with more bytes is better. Gains below it are none.
    smallest: float = 1e-9
    prune_rounds: int = 3  # Removals that are tried: the first by time, the others shuffled
    # In the others each op's time is multiplied by a number between these
    prune_shuffled: tuple[float, float] = (0.2, 1.0)
    prune_share: float = 0.1  # Share of the work left that one of them may take

    # --- nested blocks ---
    few_blocks: int = 32  # Most blocks of the first table
    many_blocks: int = 64  # Most blocks of the second
    many_blocks_left: float = 0.5  # Share of the work that must be left for it
    cuts_least: int = 3  # Fewest places to cut
    valley: float = 1.1  # Factor by which the width of forward rises on both sides of such a place
    # Parts of the room that are read off, in per cent
    room_percents: tuple[int, ...] = (100, 98, 102, 104, 106, 109, 112, 116)
    room_percents_large: int = 3  # How many of them in a large program, whose repair takes long
    # Prices of a byte by which a block keeps values, as multiples of the one at the peak
    byte_prices: tuple[float, ...] = (1e4, 4.0, 2.5, 1.6, 1.0, 0.6, 0.4, 0.25, 0.12, 0.0)
    nested_left: float = 0.6  # Share of the work left that the tables leave to what comes after them
    finer: tuple[int, ...] = (8, 4, 2)  # Parts of a per cent that a table may have per level
    finer_share: float = 0.1  # Share of the work left that it may take for them
    # Share of the bytes that coming back to a block takes that may be missing: repair makes up for it
    missing: float = 0.3
    # What a missing byte costs, in times of the block's ops per byte that they make for later
    missing_price: float = 2.0
    meet: int = 14  # Most ops that make or read one value of a block; beyond, there are no nested blocks
    again_depth: int = 400  # Longest chain of ops that a block runs again for one read
    # Added to the cost of storing: of two choices that cost nothing, the one that stores less is better
    smallest_byte: float = 1e-12
    same_block: float = 0.1  # Share by which the times of two blocks may differ to count as the same
    same_op: float = 0.3  # Share by which the time of one op may differ between them
    same_small: float = 0.02  # Share of a block's time below which nobody looks
    mostly_unlike: float = 0.5  # Share of blocks unlike all others from which on each stands for itself

    # --- stages ---
    # How many, and the share of the work left for them
    stages: tuple[tuple[int, float], ...] = ((16, 0.2), (8, 0.08), (24, 0.08))
    gap_stages: float = 1e-3  # Relative gap at which their integer program counts as solved

    # --- walks ---
    walk: float = 0.14  # Share for one walk
    walk_first: float = 0.25  # Share for walks towards a first plan
    # How walks from the best order go, one after the other
    onward: tuple[WalkStyle, ...] = (
        WalkStyle(hot=0.6, cold=0.006),
        WalkStyle(hot=0.2, cold=0.004),
        WalkStyle(hot=1.5, cold=0.01),
    )
    # How walks from the program go: hot, since where they begin is of no worth
    anew: tuple[WalkStyle, ...] = (
        WalkStyle(hot=10.0, cold=0.01, most=40),
        WalkStyle(hot=1.0, cold=0.01, pool=3, most=40),
        WalkStyle(hot=3.0, cold=0.01),
    )
    # Walks towards a first plan with their shares of the work: many short ones, then longer ones
    first: tuple[tuple[float, WalkStyle], ...] = (*[_SHORT] * 20, *_LONG)
    # One of so many of these begins from the order with the least peak, the others from the program
    from_least: int = 4
    seeds: int = 1000  # Between the seeds of two walks: a walk takes one for each part of its work
    walk_part: float = 0.1  # Work after which a walk asks whether there is time left
    walk_longest: int = 4  # Longest order that is walked through, in lengths of the program, unless it begins longer
    walk_runs: int = 32  # Most runs of one op, unless an order begins with more
    walk_edits: int = 512  # Runs put in or taken out in one move at most, beside those for what one drop may run
    walk_edits_each: int = 8  # The same for each op that one drop may run
    ruin_draws: int = 30  # Steps that are drawn at most to find a run that can be taken out
    # Runs that are taken out in a move; each as likely as any other
    ruin_runs: tuple[int, ...] = (1, 1, 1, 1, 2, 2, 4, 8)
    # Steps from the first of them within which the others are drawn
    ruin_widths: tuple[int, ...] = (4, 4, 4, 20, 20, 20, 100, 100, 100)
    drops: int = 4  # Values that may be dropped to make the order fit again, beyond two for each run that was taken out
    drops_unfit: int = 60  # Values that may be dropped in one move while the order does not fit
    early: float = 0.3  # How often a value is made again earlier than right before its read
    early_unfit: float = 0.1  # The same while the order does not fit
    rekeyed: int = 200  # Moves after which steps get new keys
    # Between the keys of neighbours: so thirty-two runs can be put between two steps before all get new keys
    key_space: int = 1 << 32
    living_on: float = 0.9  # Most of a dropped value's bytes that its inputs may take in its place, where they live on
    behind_read: float = 0.5  # How often a value that is made again early is made behind a read of one of its inputs
    # The price of a drop is multiplied by one to one plus this, so that other drops come first each time
    drop_noise: float = 2.0
    drop_draws: int = 100  # Values that are drawn at most for a drop; most are not idle there
    drop_draws_each: int = 20  # The same for each more that is to be compared
    walk_moved: float = 6e-10  # Work of moving or looking at one element of the order
    walk_edited: float = 2.5e-6  # Work of an edit beyond what it moves
    # Work of looking at a value that could be dropped, per op that would run again and runs that ops have
    walk_looked: float = 2.5e-8

    # --- the bound by prices ---
    first_instants: int = 6  # Instants to begin with
    most_instants: int = 40  # Instants at which it ends
    price_first: float = 0.05  # Price of a byte at all instants but the first to begin with, as a share of the first's
    # Price at a new instant: a share of its neighbour's, which counts no more than the second share of all prices
    price_new: tuple[float, float] = (0.1, 0.05)
    price_left: float = 1.5  # More instants are tried while so many times the work of the last are left
    price_least: float = 0.02  # Share of the mean price below which a price may still move so far
    # Factor of the box around the best prices where a plane gave more than the good share of what it promised
    reach_grows: float = 1.5
    reach_shrinks: float = 0.7  # The same where it gave less than the fair share
    reach_again: float = 4.0  # The same where the box is too small to promise anything
    good: float = 0.5  # The good share
    fair: float = 0.1  # The fair share
    price_rounds: int = 60  # Cutting planes for one set of instants
    price_close: float = 2e-4  # Share of the bound within which prices count as the best
    price_cheap: float = 1e-3  # Share of all prices below which an instant is given up
    widest: int = 1 << 20  # Most entries of a table

    # --- the bound along the spine ---
    cells: tuple[int, ...] = (120, 240, 480)  # Cells for the bytes of the room, ever finer
    cells_near: float = 0.9  # Share of the best bound that cells must reach for finer ones to be tried
    cells_left: float = 3.0  # Finer ones are tried while so many times the work of the last are left
    # Links without which there is nothing to group, and beyond which too much is lost from link to link
    links: tuple[int, int] = (2, 200)
    link_ops: int = 60  # Most ops of a link: longer ones (all of attention, a dense block) are always too tangled
    # Choices that may be looked at for one op; with more, ops of a link touch each other too much
    link_choices: int = 300_000
    spine_share: float = 0.3  # Share of the work left that the choices of all links may take
    spine_dropped: int = 4  # Values of backward that may be dropped at a start: the largest
    negligible: float = 1 / 2000  # Share of the room below which a storage counts nothing
    spine_percents: tuple[int, ...] = (100, 97, 93)  # Per cent of the room for which the bound is asked what it stores

    # --- swaps ---
    swap_alone: float = 0.35  # Share of the time limit for planning without swaps
    swap_choosing: float = 0.15  # Share for choosing swaps and for the bound
    swap_solves: int = 6  # Parts that the latter is divided into: one for each solve
    swap_ranked: int = 8  # Instants that are ranked for that
    swap_instants: int = 2  # Of these, how many are tried
    swap_gap: float = 2e-3  # Relative gap at which a choice of swaps counts as solved
    # Of what is left, for planning around the cheapest choice; the others get as much of the rest in turn
    swap_first: float = 0.6
    # Shares of a lane's time that are given to swaps: nearly all, and less where that leaves too little
    swap_lanes: tuple[float, ...] = (0.9, 0.6)
    swap_same: float = 0.15  # Two choices are one where they differ in no larger share of their swaps
    swap_windows: int = 24  # Windows of time on each side of the instant; each is a row of the program

    # --- the frontier ---
    halvings: int = 3  # Steps between the lowest budget that was kept and the highest that was not

    # --- what work takes, in seconds of a modest machine ---
    step: float = 1e-6  # Looking at one step of an order
    charges: Charges = Charges()  # What all else takes
    solve_least: float = 0.1  # Seconds on the clock that HiGHS may take, however late it is
    fewest_asks: int = 8  # Times that HiGHS may ask before an integer program is cut, however little work is left


SETTINGS = Settings()
