//! Choices and loops against the same written out.
