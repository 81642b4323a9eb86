//! Writing text with a trained network.

use crate::models::TextModel;
use pullback::{DType, Result, Tensor, catch, jit, no_grad};
use pullback_nn::Module;
use pullback_nn::data::Tokens;
use pullback_nn::models::SamplingOptions;

/// Options of [`write`].
pub struct Generation<'a> {
    /// The start of the text; it is not returned.
    pub prompt: &'a str,
    /// How many tokens to write.
    pub length: usize,
    /// How tokens are drawn.
    pub sampling: SamplingOptions,
    /// How many tokens the network sees at once.
    pub context: usize,
}

/// Writes text, a token at a time, until `stop` says so. The same seed writes the same text.
///
/// # Errors
/// If the prompt cannot be written in tokens, or the network fails.
pub fn write(
    model: &(impl TextModel + Module),
    tokens: &dyn Tokens,
    generation: &Generation,
    stop: impl Fn() -> Result<bool>,
) -> Result<String> {
    model.eval();
    let mut text = tokens.encode(generation.prompt)?;
    let start = text.len();
    if text.is_empty() {
        text.push(0);
    }
    // One shape for all lengths, so that it compiles once: what follows the last token is not seen
    // by it.
    let scores = jit(|x: &Tensor| no_grad(|| model.scores(x)));
    for n in 0..generation.length {
        if stop()? {
            break;
        }
        let seen = &text[text.len().saturating_sub(generation.context)..];
        let mut window = seen.to_vec();
        window.resize(generation.context, 0);
        let scores = scores.call(&Tensor::from_vec(window, [1, generation.context]))?;
        let last = catch(|| {
            scores
                .select_at(0, 0)
                .select_at(0, seen.len() as isize - 1)
                // The vocabulary may be larger than that of the text.
                .narrow(0, 0, tokens.size())
                .cast(DType::F64)
                .to_vec::<f64>()
        })?;
        text.push(generation.sampling.pick(&last, n));
    }
    model.train();
    tokens.decode(&text[if start == 0 { 1 } else { start }..])
}
