//! Benchmark workloads as procedures, with their consistency checks
