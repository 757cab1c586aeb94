"""Networks, programs, choices of search spaces and FPGA chips that requests may name."""
