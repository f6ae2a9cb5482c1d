//! Batches and the input log
