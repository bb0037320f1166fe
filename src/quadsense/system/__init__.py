"""Clock and limits of a solve, interrupts, threads, memory and rates of this machine."""
