//! One look at many hosts: their queues are offered, or the hosts are booked, or neither, as their columns say.
//!
//! Semantics are written at the twin, `src/outrider/kernels/turns.py`.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashSet;

use crate::backlog::{Backlog, Refusal};
use crate::groups::Groups;
use crate::ready::{self, Ready, ORDERED_CLASS};
use crate::rows::NONE;
use crate::timetable::Timetable;

/// Bytes of a record of a host, as `src/outrider/kernels/host_cells.py` draws it.
pub const HOST_BYTES: usize = 48;
const ENDED: usize = 8;
const REST_UNTIL: usize = 16;
const FIRST_QUEUE: usize = 36;
const IN_FLIGHT: usize = 42;
const FLAGS: usize = 46;

/// What a look needs of hosts and queues, as bytes, little endian.
pub struct Columns<'a> {
    /// A record of 48 bytes per host.
    pub cells: &'a [u8],
    /// u32 per queue.
    pub crawl: &'a [u8],
}

struct Look {
    host: u32,
    queue: u32,
    until: i64,
    busy: bool,
}

fn part<const SIZE: usize>(cells: &[u8; HOST_BYTES], at: usize) -> [u8; SIZE] {
    let mut octets = [0; SIZE];
    octets.copy_from_slice(&cells[at..at + SIZE]);
    octets
}

fn cell<const SIZE: usize>(column: &[u8], row: u32, what: &str) -> Result<[u8; SIZE], Refusal> {
    let start = row as usize * SIZE;
    match column.get(start..start + SIZE).and_then(|cell| cell.try_into().ok()) {
        Some(cell) => Ok(cell),
        None => Err(Refusal::Row(format!("row {row} lies outside the column {what}"))),
    }
}

/// So many leases of these queues were opened or ended: their hosts count them. The hosts in the order of the queues; of
/// opened ones only those that have any flag.
///
/// # Errors
/// A row that no column has; then nothing is counted.
pub fn count_leases(
    queues: &[u32],
    opened: bool,
    host_of: &[u8],
    cells: &[Cell<u8>],
) -> Result<Vec<u32>, Refusal> {
    let mut hosts = Vec::with_capacity(queues.len());
    for &queue in queues {
        let host = u32::from_le_bytes(cell(host_of, queue, "hosts")?);
        if host as usize >= cells.len() / HOST_BYTES {
            return Err(Refusal::Row(format!("row {host} lies outside the column cells")));
        }
        hosts.push(host);
    }
    let step = if opened { 1 } else { u16::MAX };
    hosts.retain(|&host| {
        let cells = &cells[host as usize * HOST_BYTES..][..HOST_BYTES];
        let count = u16::from_le_bytes([cells[IN_FLIGHT].get(), cells[IN_FLIGHT + 1].get()]);
        let [low, high] = count.wrapping_add(step).to_le_bytes();
        cells[IN_FLIGHT].set(low);
        cells[IN_FLIGHT + 1].set(high);
        !opened || cells[FLAGS].get() != 0 || cells[FLAGS + 1].get() != 0
    });
    Ok(hosts)
}

/// Turns and clocks of shared groups, brought up to date with the cells of these hosts.
///
/// # Errors
/// A row that the cells do not have; then nothing is done.
pub fn follow(groups: &mut Groups, hosts: &[u32], cells: &[u8]) -> Result<(), Refusal> {
    for &host in hosts {
        cell::<HOST_BYTES>(cells, host, "cells")?;
    }
    groups.touch(hosts);
    for &host in hosts {
        let cells: [u8; HOST_BYTES] = cell(cells, host, "cells")?;
        let in_flight = u32::from(u16::from_le_bytes(part(&cells, IN_FLIGHT)));
        let rest_until = i64::from_le_bytes(part(&cells, REST_UNTIL));
        groups.follow(host, in_flight, rest_until, i64::from_le_bytes(part(&cells, ENDED)));
    }
    Ok(())
}

/// What the columns say of the hosts, in their order; or the odd ones, if there are any.
fn looks(
    hosts: &[u32],
    odd_flags: u16,
    columns: &Columns<'_>,
) -> Result<Result<Vec<Look>, Vec<u32>>, Refusal> {
    let mut looks = Vec::with_capacity(hosts.len());
    let mut odd = Vec::new();
    for &host in hosts {
        let cells: [u8; HOST_BYTES] = cell(columns.cells, host, "cells")?;
        let queue = u32::from_le_bytes(part(&cells, FIRST_QUEUE));
        let flags = u16::from_le_bytes(part(&cells, FLAGS));
        let until = i64::from_le_bytes(part(&cells, REST_UNTIL));
        if queue == NONE || flags & odd_flags != 0 {
            odd.push(host);
        } else if until < 0 {
            return Err(Refusal::Value(format!("rest_until: {until} lies before 1970")));
        }
        let busy = part(&cells, IN_FLIGHT) != [0, 0];
        looks.push(Look { host, queue, until, busy });
    }
    Ok(if odd.is_empty() { Ok(looks) } else { Err(odd) })
}

/// The looks by their places: of those that leave, that are due and that rest.
type Places = (Vec<Look>, Vec<Look>, Vec<Look>);

fn sorted_out(looks: Vec<Look>, now: i64, backlog: &Backlog) -> Result<Places, Refusal> {
    let queues: Vec<u32> = looks.iter().map(|look| look.queue).collect();
    let (mut out, mut due, mut later) = (Vec::new(), Vec::new(), Vec::new());
    for (look, waiting) in looks.into_iter().zip(backlog.waiting(&queues)?) {
        if waiting == 0 || look.busy {
            out.push(look);
        } else if look.until > now {
            later.push(look);
        } else {
            due.push(look);
        }
    }
    Ok((out, due, later))
}

/// What is offered of a host that is due.
struct Offer {
    queue: u32,
    crawl: u32,
    class: u8,
    /// Of the best card, in a crawl with an exact order.
    key: Option<ready::Key>,
}

fn offers_of(
    due: &[Look],
    columns: &Columns<'_>,
    backlog: &Backlog,
) -> Result<Vec<Offer>, Refusal> {
    let queues: Vec<u32> = due.iter().map(|look| look.queue).collect();
    let mut offers = Vec::with_capacity(due.len());
    for (&queue, (class, due, order)) in queues.iter().zip(backlog.best_keys(&queues)?) {
        let crawl = u32::from_le_bytes(cell(columns.crawl, queue, "crawl")?);
        let ordered = usize::from(class) >= ready::CLASSES;
        let (class, key) =
            if ordered { (ORDERED_CLASS, Some((due, order))) } else { (class, None) };
        offers.push(Offer { queue, crawl, class, key });
    }
    Ok(offers)
}

/// Gives all their places: those that leave first, then those that are offered, then those that rest.
fn place(
    out: &[Look],
    offers: Vec<Offer>,
    later: &[Look],
    ready: &mut Ready,
    timetable: &mut Timetable,
) {
    for look in out {
        ready.withdraw(look.queue);
        timetable.cancel(look.host);
    }
    for Offer { queue, crawl, class, key } in offers {
        match key {
            None => ready.offer(queue, crawl, class),
            Some(key) => ready.offer_in_order(queue, crawl, key),
        }
    }
    timetable.touch(later.iter().map(|look| look.host));
    for look in later {
        ready.withdraw(look.queue);
        timetable.rest(look.host, look.until);
    }
}

/// Settles the turns of hosts; those that are odd are given back, and then nothing was done for any.
///
/// # Errors
/// A row that no column has, an instant before 1970, or a class that no ring has.
pub fn settle(
    hosts: &mut Vec<u32>,
    now: i64,
    odd_flags: u16,
    columns: &Columns<'_>,
    backlog: &Backlog,
    ready: &mut Ready,
    timetable: &mut Timetable,
) -> Result<Vec<u32>, Refusal> {
    hosts.sort_unstable();
    hosts.dedup();
    let looks = match looks(hosts, odd_flags, columns)? {
        Ok(looks) => looks,
        Err(odd) => return Ok(odd),
    };
    let queues: Vec<u32> = looks.iter().map(|look| look.queue).collect();
    let (out, due, later) = sorted_out(looks, now, backlog)?;
    let offers = offers_of(&due, columns, backlog)?;
    ready.touch(&queues);
    place(&out, offers, &later, ready, timetable);
    Ok(Vec::new())
}

/// What became of a look at hosts that share clocks.
#[derive(Default)]
pub struct Settled {
    /// Hosts that columns do not tell enough of; then nothing was done.
    pub odd: Vec<u32>,
    /// Odd hosts that lost their turns and stand in the rings still.
    pub displaced: Vec<u32>,
    /// Hosts that are due and whose address is not known.
    pub seeking: Vec<u32>,
}

/// These rows, each where it is named first.
fn once(hosts: &[u32]) -> Cow<'_, [u32]> {
    let mut sorted = hosts.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    if sorted.len() == hosts.len() {
        return Cow::Borrowed(hosts);
    }
    let mut seen = HashSet::with_capacity(sorted.len());
    Cow::Owned(hosts.iter().copied().filter(|&host| seen.insert(host)).collect())
}

/// As `settle`, in the order given, where hosts share clocks: due hosts ask for the turns of their groups.
///
/// located: per host the instant until which its address counts as known; empty when none is asked for.
///
/// # Errors
/// As `settle`.
#[allow(clippy::too_many_arguments)]
pub fn settle_shared(
    hosts: &[u32],
    now: i64,
    odd_flags: u16,
    columns: &Columns<'_>,
    located: &[u8],
    backlog: &Backlog,
    groups: &mut Groups,
    ready: &mut Ready,
    timetable: &mut Timetable,
) -> Result<Settled, Refusal> {
    let mut settled = Settled::default();
    let looks = match looks(&once(hosts), odd_flags, columns)? {
        Ok(looks) => looks,
        Err(odd) => return Ok(Settled { odd, ..settled }),
    };
    let queues: Vec<u32> = looks.iter().map(|look| look.queue).collect();
    let (mut out, mut due, later) = sorted_out(looks, now, backlog)?;
    let mut seekers = Vec::new();
    if !located.is_empty() {
        let mut known = Vec::with_capacity(due.len());
        for look in due {
            let until = i64::from_le_bytes(cell(located, look.host, "located")?);
            if until > now {
                known.push(look);
            } else {
                seekers.push(look);
            }
        }
        due = known;
    }
    let offers = offers_of(&due, columns, backlog)?;
    ready.touch(&queues);
    groups.touch(hosts);
    for look in &seekers {
        groups.step_aside(look.host);
        ready.withdraw(look.queue);
        settled.seeking.push(look.host);
    }
    for look in out.iter().chain(&later) {
        groups.forget(look.host);
    }
    let mut displaced = Vec::new();
    for (look, offer) in due.iter().zip(&offers) {
        groups.admit(look.host, offer.class, &[offer.crawl], now, &mut displaced);
    }
    for host in displaced.into_iter().filter(|&host| !groups.stands(host)) {
        let cells: [u8; HOST_BYTES] = cell(columns.cells, host, "cells")?;
        let flags = u16::from_le_bytes(part(&cells, FLAGS));
        if flags & odd_flags == 0 {
            ready.withdraw(u32::from_le_bytes(part(&cells, FIRST_QUEUE)));
        } else {
            settled.displaced.push(host);
        }
    }
    let mut admitted = Vec::with_capacity(offers.len());
    for (look, offer) in due.into_iter().zip(offers) {
        if groups.has_turns(look.host) {
            admitted.push(offer);
        } else {
            out.push(look);
        }
    }
    place(&out, admitted, &later, ready, timetable);
    Ok(settled)
}
