//! How often something happens.

/// How often something happens in a run. Every 0 steps or epochs is never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Every {
    /// Every so many steps.
    Steps(u64),
    /// Every so many epochs.
    Epochs(u64),
}

impl Every {
    /// Whether it is due after step number `step`. If that step ended an epoch, `ended_epoch` is
    /// the number of that epoch; both count from 1.
    ///
    /// ```
    /// use pullback_nn::train::Every;
    /// assert!(Every::Steps(10).is_due(30, None));
    /// assert!(!Every::Epochs(2).is_due(30, Some(3)));
    /// assert!(!Every::Steps(0).is_due(30, None)); // never
    /// ```
    #[must_use]
    pub fn is_due(self, step: u64, ended_epoch: Option<u64>) -> bool {
        match self {
            Every::Steps(0) | Every::Epochs(0) => false,
            Every::Steps(n) => step.is_multiple_of(n),
            Every::Epochs(n) => ended_epoch.is_some_and(|epoch| epoch.is_multiple_of(n)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_time_at_multiples() {
        assert!(Every::Steps(5).is_due(10, None) && !Every::Steps(5).is_due(11, Some(5)));
        assert!(Every::Epochs(2).is_due(11, Some(4)));
        assert!(!Every::Epochs(2).is_due(10, None) && !Every::Epochs(2).is_due(10, Some(3)));
        assert!(!Every::Steps(0).is_due(10, Some(1)) && !Every::Epochs(0).is_due(10, Some(1)));
    }
}
