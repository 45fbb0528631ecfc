//! How a base was chosen, as a blob's manifest keeps it and `explain` tells it.

use crate::bases::plan::BaseOutcome;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The member of a manifest's facts that tells how bases were chosen.
pub(crate) const CHOICES: &str = "base_choices";

/// How a candidate was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Source {
    /// It is the key's previous version.
    Version,
    /// Its name is near.
    Name,
    /// It shares hooks.
    Hooks,
}

impl Source {
    /// Its name in metric labels.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Version => "version",
            Self::Name => "name",
            Self::Hooks => "hooks",
        }
    }
}

/// One candidate, as `explain` tells it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CandidateAccount {
    /// Its key when it was considered.
    pub(crate) key: String,
    /// How it was found.
    pub(crate) source: Source,
    /// The share of the region's head that is in it, as the sketches estimate it, in thousandths;
    /// absent where they do not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) overlap_permille: Option<u32>,
    /// What a delta of a sample took, in thousandths of what the sample took alone; absent without
    /// a trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) trial_permille: Option<u32>,
    /// Whether it was taken.
    pub(crate) chosen: bool,
}

impl CandidateAccount {
    /// One of which `share` was found in common, with no trial.
    pub(crate) fn of(key: String, source: Source, share: f64, chosen: bool) -> Self {
        Self { key, source, overlap_permille: Some(permille(share)), trial_permille: None, chosen }
    }
}

/// A share in thousandths.
pub(crate) fn permille(share: f64) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share is between 0 and 1")]
    let permille = (share * 1000.0).round() as u32;
    permille
}

/// How a region's base was chosen: kept in the blob's manifest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ChoiceAccount {
    /// Where the region begins in the blob.
    pub(crate) offset: u64,
    /// How it ended.
    pub(crate) outcome: BaseOutcome,
    /// Who was considered, best first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) candidates: Vec<CandidateAccount>,
}

/// How the bases of a blob with these facts were chosen.
pub(crate) fn accounts_of(facts: &Value) -> Vec<ChoiceAccount> {
    facts.get(CHOICES).and_then(|choices| Vec::deserialize(choices).ok()).unwrap_or_default()
}

/// True for a blob that was stored whole because a series had drifted from its base.
pub(crate) fn ends_a_series(facts: &[u8]) -> bool {
    let facts = serde_json::from_slice(facts).unwrap_or_default();
    accounts_of(&facts).iter().any(|account| account.outcome == BaseOutcome::Drifted)
}
