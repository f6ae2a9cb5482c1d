//! The Redis surface, pure: codec, command table, commands and scripts as procedures
