"""What hpz's tests share: the machine (host), the daemon under test (service), clients of it (client), test cases (case)."""
