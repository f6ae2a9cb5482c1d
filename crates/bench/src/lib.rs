//! Benchmark drivers and reports
