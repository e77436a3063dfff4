#!/usr/bin/env python3
"""No dirty byte leaves, on pages of 1 GiB: the tests of test_zero.py on a pool of two."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from test_zero import Zero, main  # noqa: E402,F401

if __name__ == "__main__":
    main("--1g", "2", "--stock", "1G*2")
