//! Operations: their values, derivatives, dtypes and shapes. Each file is a module; those that need
//! a process of their own are tests of their own.

mod attention;
mod columns;
mod contributing;
mod devices;
mod docs;
mod dtypes;
mod einsum;
mod empty_reductions;
mod extremes;
mod extremes_slopes;
mod extremes_torch;
mod fewer_passes;
mod fft;
mod huge;
mod images;
mod kinks;
mod layers;
mod linalg;
mod places;
mod singular;
mod singular_det;
mod sizes;
mod static_shapes;
mod statistics;
mod surrogates;
mod type_names;
mod typed;
mod update;
