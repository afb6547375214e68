//! Open leases by token, each with its card. Ordered trees and a hash table in shards that double one after the other: no
//! call waits for a copy of them all. Tokens come one after the other, so the trees hold pages of 64 of them.

use std::collections::hash_map::Entry;
use std::collections::{btree_map, BTreeMap, BTreeSet, HashMap};
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
    of_token: PlacesOfTokens,
    deadlines: Deadlines,
    of_url: TokensOfUrls,
    of_holder: HashMap<u32, u32, BuildHasherDefault<Hashed>>,
}

impl Default for Leases {
    fn default() -> Self {
        Self {
            places: Rows::new(Lease::default()),
            places_used: 0,
            free: NONE,
            of_token: PlacesOfTokens::default(),
            deadlines: Deadlines::default(),
            of_url: TokensOfUrls::default(),
            of_holder: HashMap::default(),
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
        self.deadlines.insert(deadline, token);
        self.of_token.insert(token, place);
        *self.places.place(place) = lease;
    }

    /// The first open token of this range.
    pub fn first_open(&self, tokens: std::ops::RangeInclusive<u64>) -> Option<u64> {
        self.of_token.first_of(tokens)
    }

    /// The open lease of this token.
    pub fn get(&self, token: u64) -> Option<&Lease> {
        self.of_token.get(token).map(|place| self.places.get(place))
    }

    /// Ends the lease of this token.
    pub fn close(&mut self, token: u64) -> Option<Lease> {
        let place = self.of_token.remove(token)?;
        let emptied = Lease { after: self.free, ..Lease::default() };
        let lease = std::mem::replace(self.places.place(place), emptied);
        self.free = place;
        self.deadlines.remove(lease.deadline, token);
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
        let Some(place) = self.of_token.get(token) else { return false };
        let lease = self.places.place(place);
        if lease.deadline != deadline {
            self.deadlines.remove(lease.deadline, token);
            self.deadlines.insert(deadline, token);
            lease.deadline = deadline;
        }
        true
    }

    /// The tokens whose deadline has passed, in the order of (deadline, token).
    pub fn expired(&self, now: i64) -> impl Iterator<Item = u64> + '_ {
        self.deadlines.through(now)
    }

    /// The earliest deadline.
    pub fn next(&self) -> Option<i64> {
        self.deadlines.pages.first_key_value().map(|(&(deadline, _), _)| deadline)
    }

    /// The open lease of a URL of this fingerprint, the lowest token of several.
    pub fn of_url(&self, fingerprint: u64) -> Option<u64> {
        self.of_url.shard(fingerprint).get(&fingerprint).copied()
    }

    /// All open tokens, ascending.
    pub fn tokens(&self) -> impl Iterator<Item = u64> + '_ {
        self.of_token.tokens()
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
        self.of_token.count
    }

    /// Whether none is open.
    pub fn is_empty(&self) -> bool {
        self.of_token.count == 0
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

const PAGE_TOKENS: u64 = 64;

fn page_of(token: u64) -> (u64, usize) {
    (token / PAGE_TOKENS, (token % PAGE_TOKENS) as usize)
}

/// The tokens of a page whose bits are set, ascending.
fn tokens_in(page: u64, bits: u64) -> impl Iterator<Item = u64> {
    let next = |&bits: &u64| Some(bits & (bits - 1)).filter(|&rest| rest != 0);
    let tokens = std::iter::successors(Some(bits).filter(|&bits| bits != 0), next);
    tokens.map(move |bits| page * PAGE_TOKENS + u64::from(bits.trailing_zeros()))
}

/// Which of 64 tokens are open, and their places.
struct Page {
    open: u64,
    places: Box<[u32; PAGE_TOKENS as usize]>,
}

#[derive(Default)]
struct PlacesOfTokens {
    pages: BTreeMap<u64, Page>,
    count: usize,
}

impl PlacesOfTokens {
    fn insert(&mut self, token: u64, place: u32) {
        let (number, at) = page_of(token);
        let page = self
            .pages
            .entry(number)
            .or_insert_with(|| Page { open: 0, places: Box::new([NONE; PAGE_TOKENS as usize]) });
        page.open |= 1 << at;
        page.places[at] = place;
        self.count += 1;
    }

    fn get(&self, token: u64) -> Option<u32> {
        let (number, at) = page_of(token);
        let page = self.pages.get(&number).filter(|page| page.open >> at & 1 != 0)?;
        Some(page.places[at])
    }

    fn remove(&mut self, token: u64) -> Option<u32> {
        let (number, at) = page_of(token);
        let btree_map::Entry::Occupied(mut entry) = self.pages.entry(number) else { return None };
        let page = entry.get_mut();
        if page.open >> at & 1 == 0 {
            return None;
        }
        let place = page.places[at];
        page.open &= !(1 << at);
        if page.open == 0 {
            entry.remove();
        }
        self.count -= 1;
        Some(place)
    }

    fn first_of(&self, tokens: std::ops::RangeInclusive<u64>) -> Option<u64> {
        let pages = self.pages.range(page_of(*tokens.start()).0..=page_of(*tokens.end()).0);
        let mut open = pages.flat_map(|(&number, page)| tokens_in(number, page.open));
        open.find(|token| tokens.contains(token))
    }

    fn tokens(&self) -> impl Iterator<Item = u64> + '_ {
        self.pages.iter().flat_map(|(&number, page)| tokens_in(number, page.open))
    }
}

/// Which tokens of a page have a deadline, by (deadline, page).
#[derive(Default)]
struct Deadlines {
    pages: BTreeMap<(i64, u64), u64>,
}

impl Deadlines {
    fn insert(&mut self, deadline: i64, token: u64) {
        let (page, at) = page_of(token);
        *self.pages.entry((deadline, page)).or_default() |= 1 << at;
    }

    fn remove(&mut self, deadline: i64, token: u64) {
        let (page, at) = page_of(token);
        if let btree_map::Entry::Occupied(mut entry) = self.pages.entry((deadline, page)) {
            *entry.get_mut() &= !(1 << at);
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }

    /// In the order of (deadline, token).
    fn through(&self, now: i64) -> impl Iterator<Item = u64> + '_ {
        let due = self.pages.iter().take_while(move |(&(deadline, _), _)| deadline <= now);
        due.flat_map(|(&(_, page), &bits)| tokens_in(page, bits))
    }
}

const SHARDS: u64 = 256;

/// A fingerprint is a keyed hash already, and holders are few.
#[derive(Default)]
pub(crate) struct Hashed(u64);

impl Hasher for Hashed {
    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, fingerprint: u64) {
        self.0 = fingerprint;
    }

    fn write_u32(&mut self, holder: u32) {
        self.0 = u64::from(holder);
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

    #[test]
    fn tokens_are_found_whatever_page_they_are_on() {
        let mut leases = opened(60..70);
        leases.extend(62, 90);
        leases.extend(65, 90);
        leases.close(64);
        assert_eq!((None, Some(60)), (leases.first_open(1..=59), leases.first_open(1..=60)));
        assert_eq!((Some(65), None), (leases.first_open(64..=200), leases.first_open(70..=200)));
        let of_each = [90, 100].map(|now| leases.expired(now).collect::<Vec<_>>());
        assert_eq!([vec![62, 65], vec![62, 65, 60, 61, 63, 66, 67, 68, 69]], of_each);
        assert_eq!((9, 9, Some(90)), (leases.len(), leases.tokens().count(), leases.next()));
    }
}
