//! Places for connections. When all are taken, the connection that has been idle longest makes room
//! for a new one; a peer that holds its share of the places makes room for itself.

use super::network_of;
use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio_util::sync::CancellationToken;

/// A bounded number of connections, at most a share of them from one peer.
pub struct Places {
    places_max: usize,
    per_peer_max: usize,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    next: u64,
    taken: HashMap<u64, Holder>,
    /// Idle connections, by the moment that each became idle.
    idle: BTreeMap<u64, u64>,
    per_peer: HashMap<IpAddr, usize>,
}

struct Holder {
    peer: Option<IpAddr>,
    /// Key in `Table::idle` while no request is under way.
    idle_since: Option<u64>,
    requests: usize,
    closing: CancellationToken,
}

impl Places {
    /// So many places, and so many of them for one peer. Connections without an address share no
    /// bound but the first.
    pub fn new(places_max: usize, per_peer_max: usize) -> Arc<Self> {
        Arc::new(Self { places_max, per_peer_max, table: Mutex::default() })
    }

    /// A place for a connection; `None` when no idle connection can make room.
    pub fn take(self: &Arc<Self>, peer: Option<IpAddr>) -> Option<Place> {
        let peer = peer.map(network_of);
        let mut table = self.table();
        let from_peer = peer.and_then(|peer| table.per_peer.get(&peer)).copied().unwrap_or(0);
        if from_peer >= self.per_peer_max {
            table.close_oldest(|holder| holder.peer == peer)?;
        } else if table.taken.len() >= self.places_max {
            table.close_oldest(|_| true)?;
        }
        let (id, since) = (table.tick(), table.tick());
        let closing = CancellationToken::new();
        let holder = Holder { peer, idle_since: Some(since), requests: 0, closing: closing.clone() };
        table.taken.insert(id, holder);
        table.idle.insert(since, id);
        if let Some(peer) = peer {
            *table.per_peer.entry(peer).or_default() += 1;
        }
        Some(Place { places: self.clone(), id, closing })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn tick(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn close_oldest(&mut self, of: impl Fn(&Holder) -> bool) -> Option<()> {
        let id = self.idle.values().copied().find(|id| self.taken.get(id).is_some_and(&of))?;
        self.remove(id)?.closing.cancel();
        Some(())
    }

    fn remove(&mut self, id: u64) -> Option<Holder> {
        let holder = self.taken.remove(&id)?;
        if let Some(since) = holder.idle_since {
            self.idle.remove(&since);
        }
        if let Some(peer) = holder.peer
            && let Some(count) = self.per_peer.get_mut(&peer)
        {
            *count -= 1;
            if *count == 0 {
                self.per_peer.remove(&peer);
            }
        }
        Some(holder)
    }
}

/// One connection's place, given back when it is dropped.
pub struct Place {
    places: Arc<Places>,
    id: u64,
    closing: CancellationToken,
}

impl Place {
    /// Ends when the connection has to make room.
    pub fn closing(&self) -> CancellationToken {
        self.closing.clone()
    }

    /// Says that a request is under way until the guard is dropped: the connection is not idle.
    pub fn request(self: &Arc<Self>) -> UnderWay {
        let mut table = self.places.table();
        if let Some(holder) = table.taken.get_mut(&self.id) {
            holder.requests += 1;
            if let Some(since) = holder.idle_since.take() {
                table.idle.remove(&since);
            }
        }
        drop(table);
        UnderWay(self.clone())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.table().remove(self.id);
    }
}

/// A request under way on a connection.
pub struct UnderWay(Arc<Place>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut table = self.0.places.table();
        let since = table.tick();
        if let Some(holder) = table.taken.get_mut(&self.0.id) {
            holder.requests -= 1;
            if holder.requests == 0 {
                holder.idle_since = Some(since);
                table.idle.insert(since, self.0.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([10, 0, 0, last]))
    }

    #[test]
    fn the_connection_that_was_idle_longest_makes_room() {
        let places = Places::new(2, 2);
        let first = places.take(peer(1)).unwrap();
        let second = Arc::new(places.take(peer(2)).unwrap());
        let third = places.take(peer(3)).unwrap();
        assert!(first.closing().is_cancelled() && !second.closing().is_cancelled());
        // What was closed gives nothing back twice.
        drop(first);
        let under_way = second.request();
        let fourth = places.take(peer(4)).unwrap();
        assert!(third.closing().is_cancelled() && !second.closing().is_cancelled());
        drop(under_way);
        let _fifth = places.take(peer(5)).unwrap();
        assert!(fourth.closing().is_cancelled(), "the request that ended made the second the younger one");
        assert!(!second.closing().is_cancelled());
    }

    #[test]
    fn connections_with_a_request_under_way_are_never_closed() {
        let places = Places::new(1, 1);
        let held = Arc::new(places.take(peer(1)).unwrap());
        let (one, two) = (held.request(), held.request());
        assert!(places.take(peer(2)).is_none() && places.take(peer(1)).is_none());
        drop(one);
        assert!(places.take(peer(2)).is_none(), "one request is still under way");
        drop(two);
        assert!(places.take(peer(2)).is_some() && held.closing().is_cancelled());
    }

    #[test]
    fn a_peer_with_its_share_makes_room_for_itself_alone() {
        let places = Places::new(10, 2);
        let other = places.take(peer(9)).unwrap();
        let (first, second) = (places.take(peer(1)).unwrap(), places.take(peer(1)).unwrap());
        let _third = places.take(peer(1)).unwrap();
        assert!(first.closing().is_cancelled());
        assert!(!second.closing().is_cancelled() && !other.closing().is_cancelled());
    }
}
