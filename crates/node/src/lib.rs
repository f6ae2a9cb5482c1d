//! One replica as a state machine
