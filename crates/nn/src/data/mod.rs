//! Data sets, samplers and loaders.
