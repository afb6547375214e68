//! Open leases by token, each with its card. Ordered trees and a hash table in shards that double one after the other: no
//! call waits for a copy of them all.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use crate::rows::{Rows, NONE};

/// Bytes of a card before its URL.
pub const HEAD_BYTES: usize = 72;

/// One lease: 56 bytes beside its card.
#[derive(Clone, Default)]
pub struct Lease {
    /// The queue that its URL came from.
    pub queue: u32,
    /// Who holds it.
    pub holder: u32,
    /// When it expires.
    pub deadline: i64,
    /// Carried along.
    pub not_before: i64,
    /// Head and body; empty when the place is free.
    card: Box<[u8]>,
    token: u64,
    before: u32, // its neighbours among the leases of its holder
    after: u32,  // also the next free place
}

impl Lease {
    /// The 72 bytes of its card's head.
    pub fn head(&self) -> &[u8] {
        &self.card[..HEAD_BYTES]
    }

    /// What follows the head.
    pub fn body(&self) -> &[u8] {
        &self.card[HEAD_BYTES..]
    }

    fn fingerprint(&self) -> u64 {
        let mut fingerprint = [0; 8];
        fingerprint.copy_from_slice(&self.card[..8]);
        u64::from_le_bytes(fingerprint)
    }
}

/// The open leases.
pub struct Leases {
    places: Rows<Lease>,
    places_used: u32,
    free: u32,
    of_token: BTreeMap<u64, u32>,
    deadlines: BTreeSet<(i64, u64)>,
    of_url: TokensOfUrls,
    of_holder: HashMap<u32, u32>,
}

impl Default for Leases {
    fn default() -> Self {
        Self {
            places: Rows::new(Lease::default()),
            places_used: 0,
            free: NONE,
            of_token: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            of_url: TokensOfUrls::default(),
            of_holder: HashMap::new(),
        }
    }
}

impl Leases {
    /// Opens one; the token must not be open. The card begins with its head.
    pub fn open(
        &mut self,
        token: u64,
        (queue, holder): (u32, u32),
        (deadline, not_before): (i64, i64),
        (head, body): (&[u8], &[u8]),
    ) {
        let place = self.free_place();
        let after = self.of_holder.insert(holder, place).unwrap_or(NONE);
        if after != NONE {
            self.places.place(after).before = place;
        }
        let card = [head, body].concat().into_boxed_slice();
        let lease = Lease { queue, holder, deadline, not_before, card, token, before: NONE, after };
        self.of_url.insert(lease.fingerprint(), token);
        self.deadlines.insert((deadline, token));
        self.of_token.insert(token, place);
        *self.places.place(place) = lease;
    }

    /// The first open token of this range.
    pub fn first_open(&self, tokens: std::ops::RangeInclusive<u64>) -> Option<u64> {
        self.of_token.range(tokens).next().map(|(&token, _)| token)
    }

    /// The open lease of this token.
    pub fn get(&self, token: u64) -> Option<&Lease> {
        self.of_token.get(&token).map(|&place| self.places.get(place))
    }

    /// Ends the lease of this token.
    pub fn close(&mut self, token: u64) -> Option<Lease> {
        let place = self.of_token.remove(&token)?;
        let emptied = Lease { after: self.free, ..Lease::default() };
        let lease = std::mem::replace(self.places.place(place), emptied);
        self.free = place;
        self.deadlines.remove(&(lease.deadline, token));
        self.of_url.remove(lease.fingerprint(), token);
        if lease.after != NONE {
            self.places.place(lease.after).before = lease.before;
        }
        match (lease.before, lease.after) {
            (NONE, NONE) => {
                self.of_holder.remove(&lease.holder);
            }
            (NONE, after) => {
                self.of_holder.insert(lease.holder, after);
            }
            (before, after) => self.places.place(before).after = after,
        }
        Some(lease)
    }

    /// Moves the deadline; whether the lease is open.
    pub fn extend(&mut self, token: u64, deadline: i64) -> bool {
        let Some(&place) = self.of_token.get(&token) else { return false };
        let lease = self.places.place(place);
        if lease.deadline != deadline {
            self.deadlines.remove(&(lease.deadline, token));
            self.deadlines.insert((deadline, token));
            lease.deadline = deadline;
        }
        true
    }

    /// The tokens whose deadline has passed, in the order of (deadline, token).
    pub fn expired(&self, now: i64) -> impl Iterator<Item = u64> + '_ {
        self.deadlines.iter().take_while(move |(deadline, _)| *deadline <= now).map(|due| due.1)
    }

    /// The earliest deadline.
    pub fn next(&self) -> Option<i64> {
        self.deadlines.first().map(|&(deadline, _)| deadline)
    }

    /// The open lease of a URL of this fingerprint, the lowest token of several.
    pub fn of_url(&self, fingerprint: u64) -> Option<u64> {
        self.of_url.shard(fingerprint).get(&fingerprint).copied()
    }

    /// All open tokens, ascending.
    pub fn tokens(&self) -> impl Iterator<Item = u64> + '_ {
        self.of_token.keys().copied()
    }

    /// The open tokens of one holder, ascending.
    pub fn of_holder(&self, holder: u32) -> Vec<u64> {
        let mut tokens = Vec::new();
        let mut place = self.of_holder.get(&holder).copied().unwrap_or(NONE);
        while place != NONE {
            let lease = self.places.get(place);
            tokens.push(lease.token);
            place = lease.after;
        }
        tokens.sort_unstable();
        tokens
    }

    /// How many are open.
    pub fn len(&self) -> usize {
        self.of_token.len()
    }

    /// Whether none is open.
    pub fn is_empty(&self) -> bool {
        self.of_token.is_empty()
    }

    fn free_place(&mut self) -> u32 {
        match self.free {
            NONE => {
                self.places_used += 1;
                self.places_used - 1
            }
            place => {
                self.free = self.places.get(place).after;
                place
            }
        }
    }
}

const SHARDS: u64 = 256;

/// A fingerprint is a keyed hash already.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, fingerprint: u64) {
        self.0 = fingerprint;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// By bits that the table itself does not look at: it goes by the lowest and the highest.
fn shard_of(fingerprint: u64) -> usize {
    (fingerprint >> 40 & (SHARDS - 1)) as usize
}

type Shard = HashMap<u64, u64, BuildHasherDefault<Hashed>>;

/// The lowest token of each fingerprint, and apart the other tokens where a URL is leased more than once.
struct TokensOfUrls {
    shards: Vec<Shard>,
    others: BTreeSet<(u64, u64)>,
}

impl Default for TokensOfUrls {
    fn default() -> Self {
        let shards = (0..SHARDS).map(|_| Shard::default()).collect();
        Self { shards, others: BTreeSet::new() }
    }
}

impl TokensOfUrls {
    fn shard(&self, fingerprint: u64) -> &Shard {
        &self.shards[shard_of(fingerprint)]
    }

    fn insert(&mut self, fingerprint: u64, token: u64) {
        match self.shards[shard_of(fingerprint)].entry(fingerprint) {
            Entry::Vacant(place) => {
                place.insert(token);
            }
            Entry::Occupied(mut place) => {
                let lowest = token.min(*place.get());
                self.others.insert((fingerprint, token.max(*place.get())));
                place.insert(lowest);
            }
        }
    }

    fn remove(&mut self, fingerprint: u64, token: u64) {
        let shard = &mut self.shards[shard_of(fingerprint)];
        if shard.get(&fingerprint) != Some(&token) {
            self.others.remove(&(fingerprint, token));
            return;
        }
        let others = self.others.range((fingerprint, 0)..=(fingerprint, u64::MAX));
        match others.copied().next() {
            None => {
                shard.remove(&fingerprint);
            }
            Some(next) => {
                self.others.remove(&next);
                shard.insert(fingerprint, next.1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(tokens: std::ops::Range<u64>) -> Leases {
        let mut leases = Leases::default();
        for token in tokens {
            let mut head = [0; HEAD_BYTES];
            head[0] = token as u8;
            leases.open(token, (9, token as u32 % 3), (100, 0), (&head, b"body"));
        }
        leases
    }

    #[test]
    fn places_of_ended_leases_are_used_again() {
        let mut leases = opened(1..101);
        for token in 1..10_000 {
            assert!(leases.close(token).is_some());
            leases.open(token + 100, (9, 1), (100, 0), (&[0; HEAD_BYTES], b""));
        }
        assert_eq!((100, 100), (leases.len(), leases.places_used));
    }

    #[test]
    fn a_holder_has_what_was_opened_for_it_and_not_closed() {
        let mut leases = opened(1..11);
        for token in [10, 4, 6] {
            leases.close(token);
        }
        let of_each = [0, 1, 2].map(|holder| leases.of_holder(holder));
        assert_eq!([vec![3, 9], vec![1, 7], vec![2, 5, 8]], of_each);
    }
}
