//! Requests under way, by who sent them: one user, or one peer that does not sign, cannot take
//! every place.

use super::network_of;
use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Who a request is counted for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Holder {
    /// Whose signature it carries.
    User(String),
    /// Where it comes from, when nobody signed it.
    Peer(IpAddr),
}

impl Holder {
    /// The user of a name, or else the network of an address.
    pub fn of(user: Option<&str>, peer: Option<IpAddr>) -> Self {
        match user {
            Some(name) => Self::User(name.to_owned()),
            None => Self::Peer(network_of(peer.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)))),
        }
    }
}

/// So many at once for each holder.
pub struct Shares {
    per_holder_max: usize,
    taken: Mutex<HashMap<Holder, usize>>,
}

impl Shares {
    /// So many for each.
    pub fn new(per_holder_max: usize) -> Arc<Self> {
        Arc::new(Self { per_holder_max, taken: Mutex::default() })
    }

    /// One more for a holder; `None` when it has its share.
    pub fn take(self: &Arc<Self>, holder: &Holder) -> Option<Share> {
        let mut taken = self.taken();
        let count = taken.entry(holder.clone()).or_default();
        if *count >= self.per_holder_max {
            return None;
        }
        *count += 1;
        Some(Share { shares: self.clone(), holder: holder.clone() })
    }

    /// Whether nobody holds anything.
    #[cfg(test)]
    pub(super) fn is_untouched(&self) -> bool {
        self.taken().is_empty()
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<Holder, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of a holder's share, given back when it is dropped.
pub struct Share {
    shares: Arc<Shares>,
    holder: Holder,
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.shares.taken();
        if let Some(count) = taken.get_mut(&self.holder) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.holder);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_its_share_waits_for_itself_alone_and_who_has_none_is_forgotten() {
        let shares = Shares::new(2);
        let (one, other) = (Holder::of(Some("one"), None), Holder::of(None, Some(IpAddr::from([10, 0, 0, 1]))));
        let held = (shares.take(&one).unwrap(), shares.take(&one).unwrap());
        assert!(shares.take(&one).is_none());
        assert!(shares.take(&other).is_some());
        drop(held.0);
        assert!(shares.take(&one).is_some());
        drop(held.1);
        assert!(shares.is_untouched());
    }
}
