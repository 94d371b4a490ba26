"""Work spread over processes and over a Dask cluster: the same digits, data that travel once, and workers that may die."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from parallel_tasks import Travelling, die, die_once, refuse, square
from typer.testing import CliRunner

import multihorizon as mh
from multihorizon.cli import app
from multihorizon.parallel import _sent, in_parallel, limited

DOMAIN = mh.domains.cliff()
pytestmark = [
    pytest.mark.slow,  # processes and a cluster are started
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
]


def solved() -> mh.Solution:
    table = mh.Demonstrations.simulate(DOMAIN.mdp, DOMAIN.soft_experts(), 60, names=["x", "y", "z"])
    return mh.solve(mh.Problem(DOMAIN.mdp, table), mh.MaximumLikelihood(1.0, starts=1))


@pytest.fixture(scope="module")
def workers() -> Iterator[Any]:
    """Two worker processes of one thread each on this machine."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50) as running:
        yield running


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_come_in_the_order_of_the_items(jobs: int) -> None:
    assert list(in_parallel(square, range(7), jobs)) == [0, 1, 4, 9, 16, 25, 36]
    assert list(in_parallel(square, [], jobs)) == []
    assert list(in_parallel(square, range(7), jobs)) == [0, 1, 4, 9, 16, 25, 36]


def test_what_tasks_share_travels_to_each_process_once(tmp_path: Path) -> None:
    assert list(in_parallel(Travelling(tmp_path), range(30), 2)) == list(range(30))
    assert sum(len(file.read_text()) for file in tmp_path.iterdir()) <= 2


def test_tasks_share_large_arrays_and_functions_that_no_module_holds() -> None:
    large, added = np.arange(300_000.0), 3.0
    found = list(in_parallel(lambda item: float(large[item] + added), [5, 299_999, 7], 2))
    assert found == [8.0, 300_002.0, 10.0]


def test_the_task_of_a_process_that_dies_is_done_again(tmp_path: Path) -> None:
    assert list(in_parallel(partial(die_once, tmp_path / "died"), range(6), 2)) == [0, 1, 4, 9, 16, 25]
    assert (tmp_path / "died").exists()


def test_a_task_that_kills_every_process_is_given_up() -> None:
    with pytest.raises(OSError, match="workers died 2 times during this work"):
        list(in_parallel(die, range(2), 2, retries=1))


@pytest.mark.slow
def test_all_results_of_a_cluster_are_the_same_if_a_worker_dies_in_the_middle(workers: Any) -> None:
    solution = solved()
    here = mh.bootstrap(solution, draws=16, jobs=1, seed=3)
    killed: list[int] = []

    def kill_one(share: float, message: str) -> None:
        if share > 0.2 and not killed:
            killed.append(next(iter(workers.workers.values())).process.process.pid)
            os.kill(killed[0], signal.SIGKILL)

    with mh.cluster(workers.scheduler_address):
        bereft = mh.bootstrap(solution, draws=16, seed=3, progress=kill_one)
    assert killed
    np.testing.assert_array_equal(bereft.discounts, here.discounts)
    np.testing.assert_array_equal(bereft.rewards, here.rewards)


def test_what_tasks_share_travels_to_each_worker_once(workers: Any, tmp_path: Path) -> None:
    with mh.cluster(workers.scheduler_address):
        assert list(in_parallel(Travelling(tmp_path), range(30), 1)) == list(range(30))
    assert sum(len(file.read_text()) for file in tmp_path.iterdir()) <= 3


def test_a_cluster_tells_what_a_task_raised_and_forgets_the_rest(workers: Any) -> None:
    with mh.cluster(workers.scheduler_address):
        with pytest.raises(ValueError, match="item 0 is refused"):
            list(in_parallel(refuse, range(5), 1))
        results = in_parallel(square, range(100), 1)
        assert [next(results) for _ in range(3)] == [0, 1, 4]
        results.close()
    assert list(in_parallel(square, [2, 3], 1)) == [4, 9]


def test_a_task_that_kills_every_worker_of_a_cluster_is_given_up(workers: Any) -> None:
    with mh.cluster(workers.scheduler_address), pytest.raises(OSError, match="workers died 1 time "):
        list(in_parallel(die, range(1), 1, retries=0))


def test_what_never_arrives_at_a_cluster_is_sent_again() -> None:
    class Client:
        """A cluster of one worker, in which the first transfer never ends."""

        def __init__(self) -> None:
            self.sent = 0
            self.over = Event()

        def nthreads(self) -> dict[str, int]:
            return {"worker": 1}

        def scatter(self, task: str, **_: bool) -> str:
            self.sent += 1
            if self.sent == 1:
                self.over.wait(30)
            return task

    client = Client()
    try:
        assert _sent(client, "task", patience=0.05) == "task"
        assert client.sent == 2
        assert not client.over.is_set()
    finally:
        client.over.set()


@pytest.mark.slow
def test_a_fit_on_a_cluster_has_the_same_digits(workers: Any, tmp_path: Path) -> None:
    mh.Demonstrations.simulate(DOMAIN.mdp, DOMAIN.soft_experts(), 60, names=["x", "y", "z"]).to_csv(tmp_path / "d.csv")
    DOMAIN.mdp.to_npz(tmp_path / "m.npz")
    answers = []
    for more in ([], ["--cluster", workers.scheduler_address]):
        out = tmp_path / f"out{len(more)}"
        arguments = [
            "fit",
            str(tmp_path / "d.csv"),
            "--transitions",
            str(tmp_path / "m.npz"),
            "--quick",
            "--temperature",
            "1",
            "--out",
            str(out),
            *more,
        ]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
        answer = json.loads((out / "result.json").read_text())
        answers.append({key: value for key, value in answer.items() if "seconds" not in key})
    assert answers[0] == answers[1]


@pytest.mark.parametrize("address", ["nonsense", "tcp://127.0.0.1:1"])
@pytest.mark.parametrize("command", [["fit", "d.csv"], ["goals", "d.csv"], ["recover", "d.csv"], ["reproduce"]])
def test_a_wrong_address_is_one_sentence(
    command: list[str], address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed")
    monkeypatch.chdir(tmp_path)
    files = [Path(word) for word in command if word.endswith((".csv", ".npz"))]
    for file in files:
        file.write_text("expert\n")
    with limited(answer_seconds=0.2):
        result = CliRunner().invoke(app, [*command, "--cluster", address, "--out", "out"])
    assert result.exit_code == 2
    assert f"got '{address}': none answers there" in " ".join(result.stderr.split())
    assert len(result.stderr.strip().splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(file.name for file in files)


@pytest.mark.slow
def test_a_cluster_without_the_extra_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(ValueError, match=r"pip install 'multihorizon\[cluster\]'"), mh.cluster("tcp://127.0.0.1:1"):
        pass


@pytest.mark.slow
def test_a_population_has_the_same_digits_in_one_process_in_two_and_on_a_cluster_whose_worker_dies(
    workers: Any,
) -> None:
    task = mh.domains.space_adventure(mini_blocks=12)
    people = task.persons(40, seed=3)
    problem, killed = mh.Problem(task.mdp, people.demonstrations), list[int]()

    def solution(jobs: int, progress: Any = lambda share, message: None) -> mh.Solution:
        solver = mh.Population("~ group", people.frame, known_reward=task.reward.T.ravel(), nodes=7, jobs=jobs)
        with limited(cells=8):
            return mh.solve(problem, solver, progress=progress)

    def kill_one(share: float, message: str) -> None:
        if share > 0.4 and not killed:
            killed.append(next(iter(workers.workers.values())).process.process.pid)
            os.kill(killed[0], signal.SIGKILL)

    here, there = solution(1), solution(2)
    with mh.cluster(workers.scheduler_address):
        bereft = solution(1, kill_one)
    assert killed
    for other in (there, bereft):
        np.testing.assert_array_equal(other.discounts, here.discounts)
        assert other.evidence["population"]["discount"] == here.evidence["population"]["discount"]
        assert other.objective == here.objective
