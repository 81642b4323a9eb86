//! What programs may contain, in one place. All of it is meant to be on; a defect that is known and
//! not fixed yet can be left out here, so that others are still found. Every switch names the
//! defect that it was made for.

/// In-place writes inside bodies (`vmap`, `scan`, `cond`, inner derivatives): the derivative of the
/// old value was lost where a body was differentiated outside.
pub const WRITES_IN_BODIES: bool = true;

/// Derivatives inside `checkpoint`, and derivatives of two modes around one:
/// `grad(checkpoint(jacrev(…)))` gave zeros, `grad(jvp(checkpoint(…)))` was refused.
pub const DERIVATIVES_AND_CHECKPOINTS: bool = true;

/// Writing to the results of ops that shared memory with their operand only sometimes (`powi(1)`,
/// `roll` by the length, `prod` of one element, …).
pub const SOMETIMES_ALIASES: bool = true;

/// Writing to what a body returned, or to what it was given, after it: a branch of `cond` that
/// returns its operand, a loop without iterations and a nested `jit` shared memory with it eagerly
/// and not compiled, or the other way round.
pub const ALIASES_OF_BODIES: bool = true;

/// Writing through `expand` and `unfold` where they show no element twice: untracked writes were
/// done, tracked ones refused.
pub const WRITES_THROUGH_REPEATS: bool = true;

/// `no_grad` under forward mode: eager, compiled and batched code differed.
pub const NO_GRAD_FORWARD: bool = true;

/// Ops that could not be compiled or batched although their shapes are static (`one_hot`,
/// `searchsorted`, `matrix_exp`, …), or not in a traced loop that is differentiated (Fourier
/// transforms, `fixed_point`).
pub const REFUSED_IN_TRACES: bool = true;

/// `any` and `all` of nothing, determinants of singular matrices, and other values at extremes
/// where compiled code differed.
pub const EXTREMES: bool = true;

/// The switches as they are for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switches {
    /// [`WRITES_IN_BODIES`].
    pub writes_in_bodies: bool,
    /// [`DERIVATIVES_AND_CHECKPOINTS`].
    pub derivatives_and_checkpoints: bool,
    /// [`SOMETIMES_ALIASES`].
    pub sometimes_aliases: bool,
    /// [`ALIASES_OF_BODIES`].
    pub aliases_of_bodies: bool,
    /// [`WRITES_THROUGH_REPEATS`].
    pub writes_through_repeats: bool,
    /// [`NO_GRAD_FORWARD`].
    pub no_grad_forward: bool,
    /// [`REFUSED_IN_TRACES`].
    pub refused_in_traces: bool,
    /// [`EXTREMES`].
    pub extremes: bool,
}

impl Default for Switches {
    fn default() -> Switches {
        Switches {
            writes_in_bodies: WRITES_IN_BODIES,
            derivatives_and_checkpoints: DERIVATIVES_AND_CHECKPOINTS,
            sometimes_aliases: SOMETIMES_ALIASES,
            aliases_of_bodies: ALIASES_OF_BODIES,
            writes_through_repeats: WRITES_THROUGH_REPEATS,
            no_grad_forward: NO_GRAD_FORWARD,
            refused_in_traces: REFUSED_IN_TRACES,
            extremes: EXTREMES,
        }
    }
}

impl Switches {
    /// All off: only what never was a known defect.
    pub fn off() -> Switches {
        Switches {
            writes_in_bodies: false,
            derivatives_and_checkpoints: false,
            sometimes_aliases: false,
            aliases_of_bodies: false,
            writes_through_repeats: false,
            no_grad_forward: false,
            refused_in_traces: false,
            extremes: false,
        }
    }
}
