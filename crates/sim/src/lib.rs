//! Virtual time, virtual workers and a virtual disk under real nodes
