//! Politeness clocks that several hosts share: turns, who has one and did not begin yet, and who waits for one.
//!
//! A host that a group refuses waits in that group's own list. One turn that is given back wakes one host, not all.
//! Lists of all groups lie in trees by group: a group that nobody stands in or waits at has nothing but its own row.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound::{Excluded, Unbounded};

use crate::ready::CLASSES;
use crate::rows::{Rows, NONE};

/// Groups that one host may belong to.
pub const GROUPS_PER_HOST: usize = 4;
/// The best class.
pub const CLASS_MAX: u8 = CLASSES as u8 - 1;
/// Of so many turns of a group one goes to who has asked first.
const OLDEST_TURN_EVERY: u32 = 8;
/// Stands where others have their class: its turn came by age, and no class takes it away.
const BY_AGE: u8 = CLASS_MAX + 1;
/// Groups that one search for claimants looks at.
const LOOKS_MAX: usize = 10_000;

/// The gap of a group that rests as long as its hosts.
pub const OF_HOSTS: i64 = -1;

/// 56 bytes per row.
#[derive(Clone, Copy)]
struct Group {
    capacity: u32, // 0: not defined
    in_flight: u32,
    waiting: u32,
    standing: u32, // whose turn others may take
    owed: u32,     // turns that began since one was given by age
    closed: bool,  // reserved for one host: it refuses all
    clock: i64,
    gap: i64,  // microseconds from the end of a request to the next, or OF_HOSTS
    ripe: i64, // the instant it stands at among the ripe, NEVER if it does not
}

const NEVER: i64 = i64::MIN;
const UNDEFINED: Group = Group {
    capacity: 0,
    in_flight: 0,
    waiting: 0,
    standing: 0,
    owed: 0,
    closed: false,
    clock: 0,
    gap: OF_HOSTS,
    ripe: NEVER,
};

/// 80 bytes per row.
#[derive(Clone, Copy)]
struct Host {
    groups: [u32; GROUPS_PER_HOST], // in the order of joining, NONE behind them
    turns: [u32; GROUPS_PER_HOST],  // that it has of each
    since: u64,                     // the number of its asking, 0 when it does not ask
    tag: u64, // its round among those of its class at the group where it waits
    stood_at: i64,
    waits_at: u32, // the group that refused it; kept when it is woken
    crawl: u32,    // the first of its crawls
    aged_at: u32,  // the group that gave it a turn by age
    class: u8,
    waits: bool,
    stands: bool,
    held: bool, // it stands, and nobody may take its turn
}

const STRANGER: Host = Host {
    groups: [NONE; GROUPS_PER_HOST],
    turns: [0; GROUPS_PER_HOST],
    since: 0,
    tag: 0,
    stood_at: 0,
    waits_at: NONE,
    crawl: NONE,
    aged_at: NONE,
    class: 0,
    waits: false,
    stands: false,
    held: false,
};

impl Host {
    fn groups(&self) -> impl Iterator<Item = (usize, u32)> {
        self.groups.into_iter().enumerate().take_while(|&(_, group)| group != NONE)
    }

    /// How hard its turn is to take.
    fn hold(&self) -> u8 {
        if self.aged_at == NONE {
            self.class
        } else {
            BY_AGE
        }
    }
}

/// Groups of hosts.
pub struct Groups {
    groups: Rows<Group>,
    hosts: Rows<Host>,
    crawls: HashMap<u32, Vec<u32>>, // of hosts that ask for several
    waiters: BTreeMap<(u32, u8, u64, u64), u32>, // (group, CLASS_MAX - class, tag, since): host
    ages: BTreeMap<(u32, u64), u32>, // (group, since): host
    lines: BTreeMap<(u32, u32, u8, u64, u64), u32>, // (group, crawl, CLASS_MAX - class, tag, since): host
    standing: BTreeMap<(u32, u8, Reverse<u64>), u32>, // (group, hold, since): host
    contests: BTreeMap<(u32, u32), u64>, // (group, crawl): number, where one of the crawl waits and somebody stands
    contested: BTreeMap<(u32, u64), u32>, // (crawl, number): group
    contests_counted: u64,
    ripe: BTreeSet<(i64, u32)>, // (clock, group) of those where somebody who waits may go
    asked: u64,
    waiting: usize,
}

impl Default for Groups {
    fn default() -> Self {
        Self {
            groups: Rows::new(UNDEFINED),
            hosts: Rows::new(STRANGER),
            crawls: HashMap::new(),
            waiters: BTreeMap::new(),
            ages: BTreeMap::new(),
            lines: BTreeMap::new(),
            standing: BTreeMap::new(),
            contests: BTreeMap::new(),
            contested: BTreeMap::new(),
            contests_counted: 0,
            ripe: BTreeSet::new(),
            asked: 0,
            waiting: 0,
        }
    }
}

impl Groups {
    /// The group has so many turns, and this gap, from now on; those taken stay taken.
    pub fn define(&mut self, group: u32, capacity: u32, gap: i64) {
        let place = self.groups.place(group);
        place.capacity = capacity;
        place.gap = gap;
        self.settle(group);
    }

    /// The group refuses all hosts, or no longer does.
    pub fn close(&mut self, group: u32, closed: bool) {
        self.groups.place(group).closed = closed;
        self.settle(group);
    }

    /// Whether the group was defined.
    pub fn is_defined(&self, group: u32) -> bool {
        self.groups.get(group).capacity > 0
    }

    /// The host belongs to the group too. Either all pairs join or none; the groups must be defined. Who stands or
    /// waits must not join.
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
        let more = |&(host, ref groups): &(u32, [u32; GROUPS_PER_HOST])| {
            *groups != self.hosts.get(host).groups
        };
        let mut joined: Vec<_> = joined.into_iter().filter(more).collect();
        joined.sort_unstable();
        for (host, groups) in joined {
            self.forget(host);
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
            self.groups.place(group).in_flight -= member.turns[slot];
            self.settle(group);
        }
    }

    /// The host asks for a turn of each of its groups, for these crawls: it stands, or waits at the first that
    /// refused. Whose turns it took are added to `displaced`.
    pub fn admit(
        &mut self,
        host: u32,
        class: u8,
        crawls: &[u32],
        now: i64,
        displaced: &mut Vec<u32>,
    ) {
        let member = *self.hosts.get(host);
        if member.groups[0] == NONE {
            return;
        }
        if member.since == 0 {
            self.asked += 1;
            self.hosts.place(host).since = self.asked;
        }
        if member.stands {
            self.unstand(host);
        }
        let lower = member.stands && class < member.class;
        match self.victims(host, class, lower, now, None) {
            Err(group) => self.wait(host, group, class, crawls, member.stands),
            Ok(victims) => {
                self.displace(&victims, displaced);
                self.stop_waiting(host);
                self.name(host, class, crawls);
                self.stand(host, now);
            }
        }
    }

    /// Whether the host has the turns that it asked for, or needs none.
    pub fn has_turns(&self, host: u32) -> bool {
        let member = self.hosts.get(host);
        member.stands || member.groups[0] == NONE
    }

    /// Whether the host has its turns, and its groups have rested.
    pub fn may_go(&self, host: u32, now: i64) -> bool {
        let member = self.hosts.get(host);
        let rested = |(_, number)| self.groups.get(number).clock <= now;
        self.has_turns(host) && member.groups().all(rested)
    }

    /// How many turns of each group the host has.
    pub fn turns(&self, host: u32) -> u32 {
        self.hosts.get(host).turns[0]
    }

    /// Whether the host has turns and did not begin.
    pub fn stands(&self, host: u32) -> bool {
        self.hosts.get(host).stands
    }

    /// Touches what is known of these hosts and their groups, so that the misses of a batch overlap.
    pub fn touch(&self, hosts: &[u32]) {
        let of_hosts = hosts.iter().fold(0, |seen, &host| {
            let member = self.hosts.get(host);
            seen ^ member.groups[0] ^ u32::from(member.held)
        });
        let of_groups = hosts.iter().fold(0, |seen, &host| {
            let member = self.hosts.get(host);
            member.groups().fold(seen, |seen, (_, group)| seen ^ self.groups.get(group).in_flight)
        });
        std::hint::black_box((of_hosts, of_groups));
    }

    /// Turns and clocks of the host's groups, as its cells tell: its open requests, the end of its rest and that of
    /// its last request.
    pub fn follow(&mut self, host: u32, in_flight: u32, rest_until: i64, ended: i64) {
        let member = *self.hosts.get(host);
        if member.groups[0] == NONE {
            return;
        }
        let busy = member.turns[0] - u32::from(member.stands);
        for _ in busy..in_flight {
            self.take(host);
        }
        for _ in in_flight..busy {
            self.release(host, 0);
        }
        for (_, number) in member.groups() {
            let group = self.groups.get(number);
            let until = match group.gap {
                OF_HOSTS => rest_until,
                _ if ended <= 0 => 0,
                gap => ended.saturating_add(gap),
            };
            if until > group.clock {
                self.set_clock(number, until);
            }
        }
    }

    /// Up to so many hosts that wait for the crawl at groups where a turn could be taken from who stands there; the
    /// group whose contest began first is the first. patience: how long a turn given by age is safe.
    pub fn claimants(&self, crawl: u32, now: i64, patience: i64, most: usize) -> Vec<u32> {
        let contested =
            self.contested.range((crawl, 0)..=(crawl, u64::MAX)).map(|(_, &group)| group);
        let open = contested.take(LOOKS_MAX).filter(|&group| {
            let there = self.groups.get(group);
            !there.closed
                && there.clock <= now
                && self
                    .standing_in(group)
                    .any(|(hold, host)| self.yields(hold, host, now, patience))
        });
        let first = |group| {
            let line = (group, crawl, 0, 0, 0)..=(group, crawl, u8::MAX, u64::MAX, u64::MAX);
            self.lines.range(line).next().map(|(_, &host)| host)
        };
        open.filter_map(first).take(most).collect()
    }

    /// The host, which waits, takes turns from who stands, of whatever class.
    pub fn claim(&mut self, host: u32, now: i64, patience: i64, displaced: &mut Vec<u32>) {
        let member = *self.hosts.get(host);
        if !member.waits {
            return;
        }
        match self.victims(host, member.class, false, now, Some(patience)) {
            Err(group) => {
                let crawls = self.crawls_of(host);
                self.wait(host, group, member.class, &crawls, false);
            }
            Ok(victims) => {
                self.displace(&victims, displaced);
                self.stop_waiting(host);
                self.stand(host, now);
            }
        }
    }

    /// Nobody takes the host's turns any more, if it stands: it is about to begin.
    pub fn hold(&mut self, host: u32) {
        let member = *self.hosts.get(host);
        if member.stands && !member.held {
            self.unrank(host);
            self.hosts.place(host).held = true;
        }
    }

    /// The next turns of the host are as if given by age.
    pub fn favour(&mut self, host: u32) {
        let member = *self.hosts.get(host);
        if member.groups[0] == NONE || member.aged_at != NONE {
            return;
        }
        let ranked = member.stands && !member.held;
        if ranked {
            self.unrank(host);
        }
        self.hosts.place(host).aged_at = member.groups[0];
        if ranked {
            self.rank(host);
        }
    }

    /// The host begins with the turns it stands with; one that does not stand takes them without asking.
    pub fn take(&mut self, host: u32) {
        let member = *self.hosts.get(host);
        if member.groups[0] == NONE {
            return;
        }
        if member.stands && !member.held {
            self.unrank(host);
        }
        self.stop_waiting(host);
        for (slot, number) in member.groups() {
            if !member.stands {
                self.hosts.place(host).turns[slot] += 1;
                self.groups.place(number).in_flight += 1;
            }
            self.groups.place(number).owed += 1;
            self.settle(number);
        }
        self.ask_no_more(host);
    }

    /// Gives one turn of each group back that has begun; the groups rest until the instant at least.
    pub fn release(&mut self, host: u32, until: i64) {
        let member = *self.hosts.get(host);
        for (slot, number) in member.groups() {
            let has_turn = member.turns[slot] > u32::from(member.stands);
            if has_turn {
                self.hosts.place(host).turns[slot] -= 1;
            }
            let group = self.groups.place(number);
            group.in_flight -= u32::from(has_turn);
            group.clock = group.clock.max(until);
            self.settle(number);
        }
    }

    /// The hosts that may ask again, at most so many: of each group whose clock is reached one per free turn, and those
    /// whose class takes the turn of somebody who stands.
    pub fn wake(&mut self, now: i64, most: usize) -> Vec<u32> {
        let mut woken = Vec::new();
        let mut next = self.ripe.first().copied();
        while let Some((clock, number)) = next {
            if clock > now || woken.len() >= most {
                break;
            }
            let group = *self.groups.get(number);
            let free = group.capacity.saturating_sub(group.in_flight) as usize;
            let holds: Vec<u8> =
                self.standing_in(number).map(|(hold, _)| hold).take(most).collect();
            for turn in 0..free + holds.len() {
                if woken.len() >= most {
                    break;
                }
                let Some((class, mut host)) = self.first_waiting(number) else { break };
                if turn >= free && class <= holds[turn - free] {
                    break;
                }
                if turn == 0 && free > 0 && group.owed >= OLDEST_TURN_EVERY {
                    let line = (number, 0)..=(number, u64::MAX);
                    host = self.ages.range(line).next().map_or(host, |(_, &host)| host);
                    if self.hosts.get(host).aged_at == NONE {
                        self.hosts.place(host).aged_at = number;
                    }
                }
                self.stop_waiting(host);
                woken.push(host);
            }
            next = self.ripe.range((Excluded((clock, number)), Unbounded)).next().copied();
        }
        woken
    }

    /// The earliest instant at which somebody who waits may go; it may have passed.
    pub fn next(&self) -> Option<i64> {
        self.ripe.first().map(|&(clock, _)| clock)
    }

    /// The host neither stands nor waits any more, and has asked for nothing.
    pub fn forget(&mut self, host: u32) {
        let member = *self.hosts.get(host);
        if member.stands {
            self.unstand(host);
        }
        if member.since != 0 || member.aged_at != NONE {
            self.stop_waiting(host);
            self.ask_no_more(host);
        }
    }

    /// The host gives the turns back that it stands with, and waits no more, but has asked as long as before.
    pub fn step_aside(&mut self, host: u32) {
        if self.hosts.get(host).stands {
            self.unstand(host);
        }
        self.stop_waiting(host);
    }

    /// The group that the host waits at.
    pub fn waits_at(&self, host: u32) -> Option<u32> {
        let member = self.hosts.get(host);
        member.waits.then_some(member.waits_at)
    }

    /// How many hosts wait at the group.
    pub fn waiting(&self, group: u32) -> u32 {
        self.groups.get(group).waiting
    }

    /// How many hosts with at least the class wait at the group for the crawl; at most `most` are counted.
    pub fn waiting_for(&self, group: u32, crawl: u32, class: u8, most: usize) -> u32 {
        let line = (group, crawl, 0, 0, 0)
            ..=(group, crawl, CLASS_MAX.saturating_sub(class), u64::MAX, u64::MAX);
        self.lines.range(line).take(most).count() as u32
    }

    /// Until when the group rests.
    pub fn clock(&self, group: u32) -> i64 {
        self.groups.get(group).clock
    }

    /// Sets the group's clock, earlier or later.
    pub fn set_clock(&mut self, group: u32, clock: i64) {
        self.groups.place(group).clock = clock;
        self.settle(group);
    }

    /// How many turns of the group are taken.
    pub fn in_flight(&self, group: u32) -> u32 {
        self.groups.get(group).in_flight
    }

    /// How many hosts wait.
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Whether no host waits.
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Whose turns the host would take, each with the group that it is about; or the first group that refuses it.
    /// lower: it stood with a better class, and gives way to one that waits. patience: classes do not matter.
    fn victims(
        &self,
        host: u32,
        class: u8,
        lower: bool,
        now: i64,
        patience: Option<i64>,
    ) -> Result<Vec<(u32, u32)>, u32> {
        let member = self.hosts.get(host);
        let mut victims: Vec<(u32, u32)> = Vec::new();
        for (_, number) in member.groups() {
            let group = self.groups.get(number);
            let gives_way = lower && member.aged_at == NONE;
            if group.closed
                || group.clock > now
                || (gives_way && self.first_waiting(number).is_some_and(|(best, _)| best > class))
            {
                return Err(number);
            }
            let gone = victims
                .iter()
                .filter(|&&(victim, _)| self.hosts.get(victim).groups.contains(&number));
            let mut taken = group.in_flight - gone.count() as u32;
            while taken >= group.capacity {
                let mut others = self
                    .standing_in(number)
                    .filter(|&(_, other)| victims.iter().all(|&(victim, _)| victim != other));
                let victim = match patience {
                    None => others.next().filter(|&(hold, _)| hold < class),
                    Some(patience) => {
                        others.find(|&(hold, other)| self.yields(hold, other, now, patience))
                    }
                };
                victims.push((victim.ok_or(number)?.1, number));
                taken -= 1;
            }
        }
        Ok(victims)
    }

    /// Whether a claim takes the turn of one that stands.
    fn yields(&self, hold: u8, host: u32, now: i64, patience: i64) -> bool {
        hold < BY_AGE || self.hosts.get(host).stood_at <= now.saturating_sub(patience)
    }

    fn displace(&mut self, victims: &[(u32, u32)], displaced: &mut Vec<u32>) {
        for &(victim, group) in victims {
            self.unstand(victim);
            let (class, crawls) = (self.hosts.get(victim).class, self.crawls_of(victim));
            self.wait(victim, group, class, &crawls, true);
            displaced.push(victim);
        }
    }

    /// Who stands in the group: (hold, host), whose turn is taken first is the first.
    fn standing_in(&self, group: u32) -> impl Iterator<Item = (u8, u32)> + '_ {
        let all = (group, 0, Reverse(u64::MAX))..=(group, u8::MAX, Reverse(0));
        self.standing.range(all).map(|(&(_, hold, _), &host)| (hold, host))
    }

    /// The class and the host of who waits in front.
    fn first_waiting(&self, group: u32) -> Option<(u8, u32)> {
        let all = (group, 0, 0, 0)..=(group, u8::MAX, u64::MAX, u64::MAX);
        self.waiters.range(all).next().map(|(&(_, rank, _, _), &host)| (CLASS_MAX - rank, host))
    }

    fn crawls_of(&self, host: u32) -> Vec<u32> {
        self.crawls.get(&host).cloned().unwrap_or_else(|| vec![self.hosts.get(host).crawl])
    }

    /// What it asks for from now on; it must not wait.
    fn name(&mut self, host: u32, class: u8, crawls: &[u32]) {
        let place = self.hosts.place(host);
        place.class = class;
        place.crawl = crawls[0];
        if crawls.len() > 1 {
            self.crawls.insert(host, crawls.to_vec());
        } else {
            self.crawls.remove(&host);
        }
    }

    fn ask_no_more(&mut self, host: u32) {
        let place = self.hosts.place(host);
        place.since = 0;
        place.waits_at = NONE;
        place.aged_at = NONE;
        place.stands = false;
        place.held = false;
        self.crawls.remove(&host);
    }

    /// It takes a turn of each of its groups, which others may take from it until it begins.
    fn stand(&mut self, host: u32, now: i64) {
        let place = self.hosts.place(host);
        place.stands = true;
        place.held = false;
        place.stood_at = now;
        let member = *place;
        for (slot, number) in member.groups() {
            self.hosts.place(host).turns[slot] += 1;
            self.groups.place(number).in_flight += 1;
        }
        if member.aged_at != NONE {
            self.groups.place(member.aged_at).owed = 0;
        }
        self.rank(host);
    }

    /// It gives these turns back; one that was given by age falls to who has asked first.
    fn unstand(&mut self, host: u32) {
        let member = *self.hosts.get(host);
        if !member.held {
            self.unrank(host);
        }
        let place = self.hosts.place(host);
        place.stands = false;
        place.held = false;
        if member.aged_at != NONE {
            self.groups.place(member.aged_at).owed = OLDEST_TURN_EVERY;
        }
        for (slot, number) in member.groups() {
            self.hosts.place(host).turns[slot] -= 1;
            self.groups.place(number).in_flight -= 1;
            self.settle(number);
        }
    }

    /// Others may take its turns.
    fn rank(&mut self, host: u32) {
        let member = *self.hosts.get(host);
        for (_, number) in member.groups() {
            self.standing.insert((number, member.hold(), Reverse(member.since)), host);
            let group = self.groups.place(number);
            group.standing += 1;
            if group.standing == 1 && group.waiting > 0 {
                for crawl in self.crawls_waiting(number) {
                    self.contest(number, crawl);
                }
            }
            self.settle(number);
        }
    }

    fn unrank(&mut self, host: u32) {
        let member = *self.hosts.get(host);
        for (_, number) in member.groups() {
            self.standing.remove(&(number, member.hold(), Reverse(member.since)));
            let group = self.groups.place(number);
            group.standing -= 1;
            if group.standing == 0 && group.waiting > 0 {
                for crawl in self.crawls_waiting(number) {
                    self.end_contest(number, crawl);
                }
            }
            self.settle(number);
        }
    }

    fn crawls_waiting(&self, group: u32) -> Vec<u32> {
        let mut found = Vec::new();
        let mut from = Some(0);
        while let Some(least) = from {
            let rest = (group, least, 0, 0, 0)..=(group, u32::MAX, u8::MAX, u64::MAX, u64::MAX);
            let crawl = self.lines.range(rest).next().map(|(&(_, crawl, ..), _)| crawl);
            found.extend(crawl);
            from = crawl.and_then(|crawl| crawl.checked_add(1));
        }
        found
    }

    fn contest(&mut self, group: u32, crawl: u32) {
        if !self.contests.contains_key(&(group, crawl)) {
            self.contests_counted += 1;
            self.contests.insert((group, crawl), self.contests_counted);
            self.contested.insert((crawl, self.contests_counted), group);
        }
    }

    fn end_contest(&mut self, group: u32, crawl: u32) {
        if let Some(number) = self.contests.remove(&(group, crawl)) {
            self.contested.remove(&(crawl, number));
        }
    }

    /// front: before others of its class, as far as they have not asked before it.
    fn wait(&mut self, host: u32, number: u32, class: u8, crawls: &[u32], front: bool) {
        let before = *self.hosts.get(host);
        let stays =
            !front && (before.waits_at, before.class, before.crawl) == (number, class, crawls[0]);
        self.stop_waiting(host);
        self.name(host, class, crawls);
        let rank = CLASS_MAX - class;
        let tag =
            if stays { before.tag } else { self.tag(number, crawls[0], rank, before.since, front) };
        let place = self.hosts.place(host);
        place.tag = tag;
        place.waits_at = number;
        place.waits = true;
        let since = place.since;
        self.waiters.insert((number, rank, tag, since), host);
        self.ages.insert((number, since), host);
        let group = self.groups.place(number);
        group.waiting += 1;
        let stands = group.standing > 0;
        for &crawl in crawls {
            self.lines.insert((number, crawl, rank, tag, since), host);
            if stands {
                self.contest(number, crawl);
            }
        }
        self.waiting += 1;
        self.settle(number);
    }

    /// Those of one crawl have a round each, so that crawls take turns: behind the last of its crawl, or in the round
    /// that is the next if it asked before the first of them.
    fn tag(&self, group: u32, crawl: u32, rank: u8, since: u64, front: bool) -> u64 {
        let mut own =
            self.lines.range((group, crawl, rank, 0, 0)..=(group, crawl, rank, u64::MAX, u64::MAX));
        let front = front || own.clone().next().is_none_or(|(&(.., first), _)| since < first);
        if let (false, Some((&(.., tag, _), _))) = (front, own.next_back()) {
            return tag + 1;
        }
        let all = (group, rank, 0, 0)..=(group, rank, u64::MAX, u64::MAX);
        self.waiters.range(all).next().map_or(0, |(&(_, _, tag, _), _)| tag)
    }

    fn stop_waiting(&mut self, host: u32) {
        let member = *self.hosts.get(host);
        if !member.waits {
            return;
        }
        self.hosts.place(host).waits = false;
        let (number, rank) = (member.waits_at, CLASS_MAX - member.class);
        self.waiters.remove(&(number, rank, member.tag, member.since));
        self.ages.remove(&(number, member.since));
        self.groups.place(number).waiting -= 1;
        for crawl in self.crawls_of(host) {
            self.lines.remove(&(number, crawl, rank, member.tag, member.since));
            let line = (number, crawl, 0, 0, 0)..=(number, crawl, u8::MAX, u64::MAX, u64::MAX);
            if self.lines.range(line).next().is_none() {
                self.end_contest(number, crawl);
            }
        }
        self.waiting -= 1;
        self.settle(number);
    }

    /// The group stands among the ripe as long as somebody who waits may go: to a free turn, or to that of a lower
    /// class that stands.
    fn settle(&mut self, number: u32) {
        let group = *self.groups.get(number);
        let may_go = group.waiting > 0
            && !group.closed
            && (group.in_flight < group.capacity
                || (group.standing > 0
                    && self.standing_in(number).next().map(|(hold, _)| hold)
                        < self.first_waiting(number).map(|(class, _)| class)));
        let ripe = if may_go { group.clock } else { NEVER };
        if ripe == group.ripe {
            return;
        }
        self.groups.place(number).ripe = ripe;
        if group.ripe != NEVER {
            self.ripe.remove(&(group.ripe, number));
        }
        if may_go {
            self.ripe.insert((ripe, number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admit(groups: &mut Groups, host: u32, class: u8, now: i64) -> (bool, Vec<u32>) {
        let mut displaced = Vec::new();
        groups.admit(host, class, &[0], now, &mut displaced);
        (groups.has_turns(host), displaced)
    }

    #[test]
    fn one_turn_given_back_wakes_one_host() {
        let mut groups = Groups::default();
        groups.define(0, 1, OF_HOSTS);
        let pairs: Vec<(u32, u32)> = (0..1000).map(|host| (host, 0)).collect();
        assert_eq!(Ok(()), groups.join(&pairs));
        let admitted = (0..1000).filter(|&host| admit(&mut groups, host, 3, 10).0).count();
        assert_eq!((1, None), (admitted, groups.next()));
        groups.take(0);
        groups.release(0, 20);
        assert_eq!((Vec::new(), Some(20)), (groups.wake(19, 9), groups.next()));
        assert_eq!((vec![1], 998), (groups.wake(20, 9), groups.len()));
    }

    #[test]
    fn a_better_class_takes_the_turn_of_who_did_not_begin() {
        let mut groups = Groups::default();
        groups.define(0, 1, OF_HOSTS);
        assert_eq!(Ok(()), groups.join(&[(1, 0), (2, 0), (3, 0)]));
        assert_eq!((true, vec![]), admit(&mut groups, 1, 3, 0));
        assert_eq!((true, vec![1]), admit(&mut groups, 2, 4, 0));
        groups.hold(2);
        assert_eq!((false, vec![]), admit(&mut groups, 3, 9, 0));
    }
}
