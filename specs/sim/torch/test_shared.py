"""PyTorch's memory that is mapped piece by piece (expandable segments), and its tensors in two processes."""

import re
import sys
from pathlib import Path

import torch
from test_command import moonferry_sim

import moonferry

PROGRAM = Path(__file__).with_name("two_processes.py")
PIECE = 20 << 20


def test_a_tensor_across_mapped_pieces_crosses_both_ways(cases):
    def case():
        torch.cuda.memory._set_allocator_settings("expandable_segments:True")
        s, m = torch.cuda.Stream(), moonferry.Stream("cuda:0")
        with torch.cuda.stream(s):
            x = torch.empty(PIECE + 4096, dtype=torch.uint8, device="cuda")
            assert torch.cuda.memory_snapshot()[0]["is_expandable"]
            with m:
                t = moonferry.from_dlpack(x)
                assert t.data_ptr == x.data_ptr()
                t.fill(7)
            y = torch.from_dlpack(t)[PIECE - 8 : PIECE + 8]
            assert y.cpu().tolist() == [7] * 16
            t.close()

    cases.right(case)


def test_a_missing_wait_there_is_reported(cases):
    def case():
        torch.cuda.memory._set_allocator_settings("expandable_segments:True")
        s = torch.cuda.Stream()
        x = torch.empty(PIECE + 4096, dtype=torch.uint8, device="cuda")
        with torch.cuda.stream(s):
            x.copy_(torch.ones(PIECE + 4096, dtype=torch.uint8).pin_memory(), non_blocking=True)
        x[PIECE - 8 : PIECE + 8].cpu()
        torch.cuda.synchronize()

    cases.wrong(case, "race: race on", "cudaMemcpyAsync", "made   call", "cuMemCreate")


def test_a_tensor_in_two_processes():
    done = moonferry_sim("--no-ledger", "--seeds", "3", "--", sys.executable, PROGRAM, "right")
    assert (done.returncode, done.stdout) == (0, "[9, 9]\n" * 3), done.stderr


def test_a_race_between_two_processes_names_both_lines():
    done = moonferry_sim("--no-ledger", "--seeds", "2", "--", sys.executable, PROGRAM, "early")
    assert done.returncode == 1, done.stderr
    assert re.search(r"first  written by stream .* of process \d+: .*two_processes\.py:\d+ in second", done.stderr)
    assert re.search(r"then   written by stream .* cudaMemcpyAsync, .*two_processes\.py:\d+ in first", done.stderr)
