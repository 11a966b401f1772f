import csv
import json
from pathlib import Path

from lowtide.reporting.csv_files import write_activation_stats, write_node_stats, write_optimizer_stats

from .synthetic import KIB, chain

NASTY = 'a,"b"\n<script>ü\U0001f600=[bold]$x$\udcff'


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_one_row_per_op_with_the_promised_columns(tmp_path: Path) -> None:
    write_node_stats(chain(), tmp_path / "nodes.csv")
    rows = _read(tmp_path / "nodes.csv")
    promised = "rank,name,op,phase,module,role,runtime_ms,active_mem_B,peak_mem_B,output_B,workspace_B,shape,dtype"
    assert ",".join(rows[0]).startswith(promised)
    assert [int(row["rank"]) for row in rows] == list(range(7))
    assert json.loads(rows[0]["shape"]) == [16, 16]
    assert all(int(r["peak_mem_B"]) == int(r["active_mem_B"]) + int(r["workspace_B"]) for r in rows)
    assert [row["layer"] for row in rows[:6]] == [f"layers.{k}" for k in (0, 1, 2, 2, 1, 0)]


def test_one_row_per_activation_with_the_promised_columns(tmp_path: Path) -> None:
    write_activation_stats(chain(), tmp_path / "activations.csv")
    rows = _read(tmp_path / "activations.csv")
    promised = (
        "name,created,last_fw_use,first_bw_use,last_bw_use,memory_size_B,inactive_time_ms,swap_time_ms,"
        "recomp_time_ms,recomp_memory_B,recompute_ratio"
    )
    assert ",".join(rows[0]).startswith(promised)
    assert [(row["name"], int(row["memory_size_B"])) for row in rows] == [(f"op{k}", KIB) for k in range(3)]


def test_names_come_back_as_they_were(tmp_path: Path) -> None:
    profile = chain(prefix=NASTY)
    write_node_stats(profile, tmp_path / "nodes.csv")
    write_activation_stats(profile, tmp_path / "activations.csv")
    write_optimizer_stats(profile, tmp_path / "optimizer.csv")
    shown = NASTY.encode("utf-8", "backslashreplace").decode()
    assert _read(tmp_path / "nodes.csv")[1]["name"] == f"{shown}op1"
    assert _read(tmp_path / "activations.csv")[2]["module"] == f"{shown}layers.2"
    assert _read(tmp_path / "optimizer.csv")[0]["op"] == f"aten.{shown}add_"


def test_without_activations_there_is_the_header(tmp_path: Path) -> None:
    write_activation_stats(chain(activations=False), tmp_path / "activations.csv")
    assert (tmp_path / "activations.csv").read_text().count("\n") == 1
