"""Work side by side: in order, with any number of cores, and not silent about an error."""

import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from plumbline import concurrency as cores


@pytest.mark.parametrize("number", [1, 2, 5])
def test_results_come_in_the_order_of_the_calls(monkeypatch, number):
    monkeypatch.setattr(cores, "usable_cores", lambda: number)
    assert cores.run_threads([lambda i=i: i * i for i in range(20)]) == [i * i for i in range(20)]
    assert cores.run_threads([]) == []


def test_calls_run_at_the_same_time(monkeypatch):
    monkeypatch.setattr(cores, "usable_cores", lambda: 2)
    both = threading.Barrier(2, timeout=10)
    assert len(cores.run_threads([both.wait, both.wait])) == 2


def test_matrix_products_leave_the_cores_to_the_calls():
    def blas_threads():
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    np.ones((2, 2)) @ np.ones((2, 2))
    before = blas_threads()
    inside = cores.run_threads([blas_threads] * (cores.usable_cores() + 1))
    assert all(threads == {1} for threads in inside)
    assert blas_threads() == before


def test_an_error_is_raised():
    with pytest.raises(ZeroDivisionError):
        cores.run_threads([lambda: 1, lambda: 1 / 0])


def test_at_least_one_core_is_there():
    assert cores.usable_cores() >= 1
