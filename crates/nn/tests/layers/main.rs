//! Layers: the numbers of PyTorch's, and what every module can do.

mod build;
mod errors;
mod init;
mod modules;
mod pytorch;
mod random;
mod summary;
