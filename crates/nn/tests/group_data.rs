//! Data, formats and weights in files. Each file is a module; those that need a process of their
//! own are tests of their own.

mod data_formats;
mod data_random_bytes;
mod data_readers;
mod data_samplers;
mod data_streams;
mod data_text;
mod data_transforms;
mod weight_rules;

#[path = "../../pullback/tests/listed/mod.rs"]
mod listed;
