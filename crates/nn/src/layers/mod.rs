//! The layers, one a file.
