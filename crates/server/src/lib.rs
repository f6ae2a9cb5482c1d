//! Runs nodes for real: sockets, files, clocks and threads
