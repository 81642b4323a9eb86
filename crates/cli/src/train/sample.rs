//! Writing text with a trained network.

use crate::models::Reader;
use pullback::{DType, Key, Result, Tensor, catch, jit, no_grad};
use pullback_nn::Module;
use pullback_nn::data::Tokens;

/// How to write.
pub struct Manner<'a> {
    /// What the text begins with; it is not given back.
    pub prompt: &'a str,
    /// How many tokens to write.
    pub length: usize,
    /// 0 always takes the most likely token.
    pub temperature: f64,
    /// Only the most likely ones are taken.
    pub top_k: Option<usize>,
    /// Where random numbers begin.
    pub seed: u64,
    /// How many tokens the network sees at once.
    pub context: usize,
}

/// Writes text, a token at a time. The same seed writes the same text.
///
/// # Errors
/// If the prompt cannot be written in tokens, or the network fails.
pub fn write(
    model: &(impl Reader + Module),
    tokens: &dyn Tokens,
    manner: &Manner,
) -> Result<String> {
    model.eval();
    let mut text = tokens.encode(manner.prompt)?;
    let start = text.len();
    if text.is_empty() {
        text.push(0);
    }
    // One shape for all lengths, so that it compiles once: what follows the last token is not seen by it.
    let scores = jit(|x: &Tensor| no_grad(|| model.scores(x)));
    for n in 0..manner.length {
        let seen = &text[text.len().saturating_sub(manner.context)..];
        let mut window = seen.to_vec();
        window.resize(manner.context, 0);
        let scores = scores.call(&Tensor::from_vec(window, [1, manner.context]))?;
        let last = catch(|| {
            scores
                .select_at(0, 0)
                .select_at(0, seen.len() as isize - 1)
                .cast(DType::F64)
                .to_vec::<f64>()
        })?;
        let draw =
            Key::new(manner.seed).fold_in(n as u64).uniform((), DType::F64, 0.0, 1.0).item::<f64>();
        text.push(choose(&last, manner, draw) as i64);
    }
    model.train();
    tokens.decode(&text[if start == 0 { 1 } else { start }..])
}

/// The token that a number from 0 to 1 falls on.
fn choose(scores: &[f64], manner: &Manner, draw: f64) -> usize {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    order.truncate(manner.top_k.unwrap_or(scores.len()).max(1));
    if manner.temperature == 0.0 {
        return order[0];
    }
    let most = scores[order[0]];
    let weights: Vec<f64> =
        order.iter().map(|&i| ((scores[i] - most) / manner.temperature).exp()).collect();
    let mut left = draw * weights.iter().sum::<f64>();
    for (&token, weight) in order.iter().zip(&weights) {
        left -= weight;
        if left < 0.0 {
            return token;
        }
    }
    order[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_drawn_by_their_weight() {
        let manner = |temperature, top_k| Manner {
            prompt: "",
            length: 1,
            temperature,
            top_k,
            seed: 0,
            context: 1,
        };
        let scores = [0.0, 2f64.ln(), 0.0];
        assert_eq!(choose(&scores, &manner(0.0, None), 0.99), 1);
        assert_eq!(choose(&scores, &manner(1.0, Some(1)), 0.99), 1);
        let drawn: Vec<usize> =
            [0.1, 0.49, 0.6, 0.8].map(|d| choose(&scores, &manner(1.0, None), d)).to_vec();
        assert_eq!(drawn, [1, 1, 0, 2]);
    }
}
