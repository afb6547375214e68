//! Politeness clocks that several hosts share: turns, and who waits for one.
//!
//! A host that a group refuses waits in that group's own list. One turn that is given back wakes one host, not all.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound::{Excluded, Unbounded};

use crate::rows::{Rows, NONE};

/// Groups that one host may belong to.
pub const GROUPS_PER_HOST: usize = 4;
/// The best class.
pub const CLASS_MAX: u8 = 15;

#[derive(Clone, Default)]
struct Group {
    capacity: u32, // 0: not defined
    in_flight: u32,
    clock: i64,
    waiters: BTreeMap<(u8, u64), u32>, // (CLASS_MAX - class, since): host
    ripe: Option<i64>,                 // the instant it stands at among the ripe
}

/// 56 bytes per row.
#[derive(Clone, Copy)]
struct Host {
    groups: [u32; GROUPS_PER_HOST], // in the order of joining, NONE behind them
    turns: [u32; GROUPS_PER_HOST],  // that it has of each
    since: u64,                     // the number of the refusal that it waits from
    waits_at: u32,                  // whose refusal that was; kept when it is woken
    class: u8,
    waits: bool,
}

const STRANGER: Host = Host {
    groups: [NONE; GROUPS_PER_HOST],
    turns: [0; GROUPS_PER_HOST],
    since: 0,
    waits_at: NONE,
    class: 0,
    waits: false,
};

impl Host {
    fn key(&self) -> (u8, u64) {
        (CLASS_MAX - self.class, self.since)
    }

    fn groups(&self) -> impl Iterator<Item = (usize, u32)> {
        self.groups.into_iter().enumerate().take_while(|&(_, group)| group != NONE)
    }
}

/// Groups of hosts.
pub struct Groups {
    groups: Rows<Option<Box<Group>>>,
    hosts: Rows<Host>,
    ripe: BTreeSet<(i64, u32)>, // (clock, group) of those with a free turn and somebody who waits
    refusals: u64,
    waiting: usize,
}

impl Default for Groups {
    fn default() -> Self {
        Self {
            groups: Rows::new(None),
            hosts: Rows::new(STRANGER),
            ripe: BTreeSet::new(),
            refusals: 0,
            waiting: 0,
        }
    }
}

impl Groups {
    /// The group has so many turns from now on; those taken stay taken.
    pub fn define(&mut self, group: u32, capacity: u32) {
        self.groups.place(group).get_or_insert_default().capacity = capacity;
        self.settle(group);
    }

    /// Whether the group was defined.
    pub fn is_defined(&self, group: u32) -> bool {
        self.groups.get(group).is_some()
    }

    /// The host belongs to the group too. Either all pairs join or none; the groups must be defined.
    pub fn join(&mut self, pairs: &[(u32, u32)]) -> Result<(), String> {
        let mut joined: HashMap<u32, [u32; GROUPS_PER_HOST]> = HashMap::new();
        for &(host, group) in pairs {
            let groups = joined.entry(host).or_insert_with(|| self.hosts.get(host).groups);
            match groups.iter().position(|&known| known == group || known == NONE) {
                Some(slot) => groups[slot] = group,
                None => {
                    return Err(format!(
                    "host {host} belongs to {GROUPS_PER_HOST} groups already, {group} is one more"
                ))
                }
            }
        }
        for (host, groups) in joined {
            self.hosts.place(host).groups = groups;
        }
        Ok(())
    }

    /// The host belongs to no group any more, waits no more and gives its turns back.
    pub fn leave(&mut self, host: u32) {
        self.forget(host);
        let member = *self.hosts.get(host);
        if member.groups[0] == NONE {
            return;
        }
        *self.hosts.place(host) = STRANGER;
        for (slot, group) in member.groups() {
            self.group(group).in_flight -= member.turns[slot];
            self.settle(group);
        }
    }

    /// Takes a turn of each of the host's groups, or none; then it waits at the first that refused.
    pub fn admit(&mut self, host: u32, class: u8, now: i64) -> bool {
        let member = *self.hosts.get(host);
        for (_, number) in member.groups() {
            let group = self.group(number);
            if group.in_flight >= group.capacity || group.clock > now {
                self.wait(host, number, class);
                return false;
            }
        }
        if member.groups[0] != NONE {
            self.take(host);
        }
        true
    }

    /// Takes a turn of each of the host's groups without asking; it waits no more.
    pub fn take(&mut self, host: u32) {
        self.forget(host);
        for (slot, number) in self.hosts.get(host).groups() {
            self.hosts.place(host).turns[slot] += 1;
            self.group(number).in_flight += 1;
            self.settle(number);
        }
    }

    /// Gives one turn of each group back; the groups rest until the instant at least.
    pub fn release(&mut self, host: u32, until: i64) {
        let member = *self.hosts.get(host);
        for (slot, number) in member.groups() {
            let has_turn = member.turns[slot] > 0;
            if has_turn {
                self.hosts.place(host).turns[slot] -= 1;
            }
            let group = self.group(number);
            group.in_flight -= u32::from(has_turn);
            group.clock = group.clock.max(until);
            self.settle(number);
        }
    }

    /// The hosts that may ask again, at most so many: one per free turn of each group whose clock is reached.
    pub fn wake(&mut self, now: i64, most: usize) -> Vec<u32> {
        let mut woken = Vec::new();
        let mut next = self.ripe.first().copied();
        while let Some((clock, number)) = next {
            if clock > now || woken.len() >= most {
                break;
            }
            let group = self.group(number);
            for _ in group.in_flight..group.capacity {
                if woken.len() >= most {
                    break;
                }
                let Some((_, host)) = self.group(number).waiters.pop_first() else { break };
                self.hosts.place(host).waits = false;
                self.waiting -= 1;
                woken.push(host);
            }
            self.settle(number);
            next = self.ripe.range((Excluded((clock, number)), Unbounded)).next().copied();
        }
        woken
    }

    /// The earliest instant at which somebody who waits may go; it may have passed.
    pub fn next(&self) -> Option<i64> {
        self.ripe.first().map(|&(clock, _)| clock)
    }

    /// The host waits no more, and has waited for nothing.
    pub fn forget(&mut self, host: u32) {
        let member = *self.hosts.get(host);
        if member.waits_at == NONE {
            return;
        }
        self.stop_waiting(&member);
        let place = self.hosts.place(host);
        place.waits = false;
        place.waits_at = NONE;
    }

    /// The group that the host waits at.
    pub fn waits_at(&self, host: u32) -> Option<u32> {
        let member = self.hosts.get(host);
        member.waits.then_some(member.waits_at)
    }

    /// Until when the group rests.
    pub fn clock(&self, group: u32) -> i64 {
        self.groups.get(group).as_ref().map_or(0, |group| group.clock)
    }

    /// Sets the group's clock, earlier or later.
    pub fn set_clock(&mut self, group: u32, clock: i64) {
        self.group(group).clock = clock;
        self.settle(group);
    }

    /// How many turns of the group are taken.
    pub fn in_flight(&self, group: u32) -> u32 {
        self.groups.get(group).as_ref().map_or(0, |group| group.in_flight)
    }

    /// How many hosts wait.
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Whether no host waits.
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    fn group(&mut self, number: u32) -> &mut Group {
        self.groups.place(number).get_or_insert_default()
    }

    fn wait(&mut self, host: u32, number: u32, class: u8) {
        let mut member = *self.hosts.get(host);
        self.stop_waiting(&member);
        if member.waits_at != number {
            self.refusals += 1;
            member.since = self.refusals;
            member.waits_at = number;
        }
        member.class = class;
        member.waits = true;
        *self.hosts.place(host) = member;
        self.group(number).waiters.insert(member.key(), host);
        self.waiting += 1;
        self.settle(number);
    }

    fn stop_waiting(&mut self, member: &Host) {
        if member.waits {
            self.group(member.waits_at).waiters.remove(&member.key());
            self.waiting -= 1;
            self.settle(member.waits_at);
        }
    }

    /// The group stands among the ripe as long as it has a free turn and somebody who waits.
    fn settle(&mut self, number: u32) {
        let group = self.group(number);
        let free = group.in_flight < group.capacity && !group.waiters.is_empty();
        let ripe = free.then_some(group.clock);
        let before = std::mem::replace(&mut group.ripe, ripe);
        if before == ripe {
            return;
        }
        if let Some(clock) = before {
            self.ripe.remove(&(clock, number));
        }
        if let Some(clock) = ripe {
            self.ripe.insert((clock, number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_turn_given_back_wakes_one_host() {
        let mut groups = Groups::default();
        groups.define(0, 1);
        let pairs: Vec<(u32, u32)> = (0..1000).map(|host| (host, 0)).collect();
        assert_eq!(Ok(()), groups.join(&pairs));
        let admitted = (0..1000).filter(|&host| groups.admit(host, 3, 10)).count();
        assert_eq!((1, None), (admitted, groups.next()));
        groups.release(0, 20);
        assert_eq!((Vec::new(), Some(20)), (groups.wake(19, 9), groups.next()));
        assert_eq!((vec![1], 998), (groups.wake(20, 9), groups.len()));
    }
}
