//! Canonical spelling of http and https URLs, row by row into one arena. What is ordinary is spelled; what is odd is
//! only marked, for a full parser to look at. The rules are written at the twin, `src/outrider/kernels/urls.py`.

use std::collections::{HashMap, HashSet};

use crate::siphash::Fingerprinter;

/// Rows as long as this are marked: what they grow to must fit 32 bits.
const ROW_BYTES_MAX: usize = 1 << 28;
/// Bit of a row's flags: the scheme is https.
pub const HTTPS: u8 = 1;
/// Bit of a row's flags: a user or password stood in it.
pub const USERINFO: u8 = 2;

/// What became of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// It is spelled.
    Spelled = 0,
    /// It takes a full parser.
    Odd = 1,
    /// No parser would make an http or https URL of it.
    Invalid = 2,
}

/// A spelled row: flags, and bytes from its first byte on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// `HTTPS` and `USERINFO`.
    pub flags: u8,
    /// Bytes of the host, which begins behind `http://` or `https://`.
    pub host_length: u32,
    /// Where the path begins.
    pub path_start: u32,
}

impl Parts {
    /// Where the host begins.
    #[must_use]
    pub fn host_start(self) -> usize {
        if self.flags & HTTPS == 0 {
            7
        } else {
            8
        }
    }
}

const NO_PARTS: Parts = Parts { flags: 0, host_length: 0, path_start: 0 };

/// The page that references are relative to.
pub struct Page<'a> {
    text: &'a [u8],
    parts: Parts,
    directory_end: usize,
    path_end: usize,
}

impl<'a> Page<'a> {
    /// A page by its canonical URL; None when the text has not the shape of one.
    #[must_use]
    pub fn of(text: &'a [u8]) -> Option<Self> {
        let (flags, start) = if text.starts_with(b"https://") {
            (HTTPS, 8)
        } else if text.starts_with(b"http://") {
            (0, 7)
        } else {
            return None;
        };
        let path_start = start + text[start..].iter().position(|&byte| byte == b'/')?;
        let authority = &text[start..path_start];
        let host_length = if authority.first() == Some(&b'[') {
            authority.iter().position(|&byte| byte == b']')? + 1
        } else {
            authority.iter().position(|&byte| byte == b':').unwrap_or(authority.len())
        };
        let fits = text.is_ascii() && text.len() < ROW_BYTES_MAX;
        if !fits || host_length == 0 {
            return None;
        }
        let path = &text[path_start..];
        let path_end = path.iter().position(|&byte| byte == b'?').unwrap_or(path.len());
        let directory_end =
            path_start + path[..path_end].iter().rposition(|&byte| byte == b'/')? + 1;
        let parts = Parts { flags, host_length: host_length as u32, path_start: path_start as u32 };
        Some(Self { text, parts, directory_end, path_end: path_start + path_end })
    }
}

// What the scanners do with a byte; most are kept as they are.
const KEEP: u8 = 0;
const ENCODE: u8 = 1;
const PERCENT: u8 = 2;
const DOT: u8 = 3;
const QUERY: u8 = 4;
const FRAGMENT: u8 = 5;
const ODD: u8 = 6;
const HIGH: u8 = 7;
const BACKSLASH: u8 = 8;

/// The path percent-encode set of the WHATWG URL Standard 1.3.
const IN_PATH: [u8; 256] = actions(b" \"<>^`{}\x7f", true);
/// The special-query percent-encode set.
const IN_QUERY: [u8; 256] = actions(b" \"<>'\x7f", false);
/// What bytes become in a host name, 0 for those that only a full parser understands.
const IN_HOST: [u8; 256] = host_bytes();
/// Whether a byte stays as it is in a label of a host name.
const IN_PLAIN_LABEL: [bool; 256] = plain_label_bytes();
/// The value of a hexadecimal digit, 16 for other bytes.
const DIGIT: [u8; 256] = digits();
/// Whether a byte is a letter, a digit or one of `-._~`: RFC 3986 section 2.3.
const UNRESERVED: [bool; 256] = unreserved();

const fn actions(encoded: &[u8], in_path: bool) -> [u8; 256] {
    let mut table = [KEEP; 256];
    let mut byte = 0;
    while byte < 256 {
        if byte >= 0x80 {
            table[byte] = HIGH;
        } else if byte < 0x20 {
            table[byte] = ENCODE;
        }
        byte += 1;
    }
    let mut place = 0;
    while place < encoded.len() {
        table[encoded[place] as usize] = ENCODE;
        place += 1;
    }
    table[b'\t' as usize] = ODD;
    table[b'\n' as usize] = ODD;
    table[b'\r' as usize] = ODD;
    table[b'%' as usize] = PERCENT;
    table[b'#' as usize] = FRAGMENT;
    if in_path {
        table[b'.' as usize] = DOT;
        table[b'?' as usize] = QUERY;
        table[b'\\' as usize] = BACKSLASH;
    }
    table
}

const fn host_bytes() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 128 {
        let letter = byte as u8;
        if letter.is_ascii_alphanumeric() {
            table[byte] = letter.to_ascii_lowercase();
        }
        byte += 1;
    }
    // What is left of printable ASCII without the forbidden domain code points of the WHATWG URL Standard 3.3.
    let others = b"-_.!\"$&'()*+,;=`{}~";
    let mut place = 0;
    while place < others.len() {
        table[others[place] as usize] = others[place];
        place += 1;
    }
    table
}

const fn plain_label_bytes() -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        let letter = byte as u8;
        table[byte] = letter != b'.' && letter != 0 && IN_HOST[byte] == letter;
        byte += 1;
    }
    table
}

const fn digits() -> [u8; 256] {
    let mut table = [16; 256];
    let mut value = 0;
    while value < 16 {
        table[b"0123456789abcdef"[value] as usize] = value as u8;
        table[b"0123456789ABCDEF"[value] as usize] = value as u8;
        value += 1;
    }
    table
}

const fn unreserved() -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        let letter = byte as u8;
        table[byte] = letter.is_ascii_alphanumeric()
            || letter == b'-'
            || letter == b'.'
            || letter == b'_'
            || letter == b'~';
        byte += 1;
    }
    table
}

/// Appends the canonical text of a row to `out`; nothing when it is not spelled.
pub fn spell(row: &[u8], page: Option<&Page>, out: &mut Vec<u8>) -> (State, Parts) {
    let start = out.len();
    let (state, parts) = Row { row, text: trimmed(row), out, start, utf8: None }.spell(page);
    if state != State::Spelled {
        out.truncate(start);
    }
    (state, parts)
}

/// The row without C0 controls and blanks at its ends.
fn trimmed(row: &[u8]) -> &[u8] {
    let mut text = row;
    while let [0..=0x20, rest @ ..] = text {
        text = rest;
    }
    while let [rest @ .., 0..=0x20] = text {
        text = rest;
    }
    text
}

fn is_line_or_tab(byte: u8) -> bool {
    matches!(byte, b'\t' | b'\n' | b'\r')
}

struct Row<'a> {
    row: &'a [u8],
    text: &'a [u8],
    out: &'a mut Vec<u8>,
    start: usize,
    /// Whether the row is UTF-8, once that was asked.
    utf8: Option<bool>,
}

type Answer = (State, Parts);
const TAKES_A_PARSER: Answer = (State::Odd, NO_PARTS);
const NO_URL: Answer = (State::Invalid, NO_PARTS);

impl Row<'_> {
    fn spell(mut self, page: Option<&Page>) -> Answer {
        if self.row.len() >= ROW_BYTES_MAX {
            return TAKES_A_PARSER;
        }
        let text = self.text;
        // Most rows are as plain as can be: asked first, the rest follows from the rules.
        if text.starts_with(b"https://") {
            return self.absolute(true, 8);
        }
        if text.starts_with(b"http://") {
            return self.absolute(false, 7);
        }
        if let Some(at) = scheme_end(text) {
            let https = match at {
                5 if text[..4].eq_ignore_ascii_case(b"http") => false,
                6 if text[..5].eq_ignore_ascii_case(b"https") => true,
                _ => return NO_URL,
            };
            if text[at..].starts_with(b"//") {
                return self.absolute(https, at + 2);
            }
            return TAKES_A_PARSER;
        }
        let Some(page) = page else {
            let mut before = text.iter().take_while(|&&byte| byte != b'#');
            return if before.any(|&byte| is_line_or_tab(byte)) { TAKES_A_PARSER } else { NO_URL };
        };
        let parts = page.parts;
        // An answer's arena grows by what the page gives and thrice the row at most.
        let whole = match text {
            [] | [b'#', ..] => {
                self.out.extend_from_slice(page.text);
                true
            }
            [b'?', ..] => {
                self.out.extend_from_slice(&page.text[..page.path_end]);
                self.query(0)
            }
            [b'/', b'/', ..] => return self.absolute(parts.flags & HTTPS != 0, 2),
            [b'\\', ..] | [b'/', b'\\', ..] => false,
            [b'/', ..] => {
                self.out.extend_from_slice(&page.text[..=parts.path_start as usize]);
                self.path(1, parts.path_start as usize)
            }
            _ => {
                self.out.extend_from_slice(&page.text[..page.directory_end]);
                self.path(0, parts.path_start as usize)
            }
        };
        if whole {
            (State::Spelled, parts)
        } else {
            TAKES_A_PARSER
        }
    }

    /// A row whose authority begins at `at`.
    fn absolute(&mut self, https: bool, at: usize) -> Answer {
        let text = self.text;
        self.out.extend_from_slice(if https { b"https://" } else { b"http://" });
        if let Some(end) = plain_host_end(text, at) {
            let flags = if https { HTTPS } else { 0 };
            let path_start = self.out.len() - self.start + (end - at);
            if text.get(end) == Some(&b'/') {
                self.out.extend_from_slice(&text[at..=end]);
            } else {
                self.out.extend_from_slice(&text[at..end]);
                self.out.push(b'/');
            }
            return self.behind_authority(
                end,
                Parts { flags, host_length: (end - at) as u32, path_start: path_start as u32 },
            );
        }
        let mut end = at;
        let mut host_start = at;
        while end < text.len() {
            match text[end] {
                b'/' | b'\\' | b'?' | b'#' => break,
                b'@' => host_start = end + 1,
                b'\t' | b'\n' | b'\r' => return TAKES_A_PARSER,
                _ => {}
            }
            end += 1;
        }
        let mut flags = if https { HTTPS } else { 0 };
        if host_start > at && !matches!(&text[at..host_start - 1], b"" | b":") {
            flags |= USERINFO;
        }
        let host_at = self.out.len();
        let Some(port) = self.host(&text[host_start..end]) else {
            return TAKES_A_PARSER;
        };
        let host_length = (self.out.len() - host_at) as u32;
        if !self.port(port, if https { 443 } else { 80 }) {
            return TAKES_A_PARSER;
        }
        let path_start = (self.out.len() - self.start) as u32;
        self.out.push(b'/');
        self.behind_authority(end, Parts { flags, host_length, path_start })
    }

    /// The rest of a row whose authority ends at `end`; `out` ends with the path's first slash.
    fn behind_authority(&mut self, end: usize, parts: Parts) -> Answer {
        let whole = match self.text.get(end) {
            Some(b'/' | b'\\') => self.path(end + 1, parts.path_start as usize),
            Some(b'?') => self.query(end),
            _ => true,
        };
        if whole {
            (State::Spelled, parts)
        } else {
            TAKES_A_PARSER
        }
    }

    /// Writes the host in lower case; gives what follows its colon, or None when the host is out of the ordinary.
    fn host<'t>(&mut self, host: &'t [u8]) -> Option<&'t [u8]> {
        let begin = self.out.len();
        let (mut label, mut label_before) = (0, 0);
        let mut size = host.len();
        for (place, &byte) in host.iter().enumerate() {
            let lower = IN_HOST[byte as usize];
            match lower {
                0 if byte == b':' => {
                    size = place;
                    break;
                }
                0 => return None,
                b'.' => {
                    if place == label {
                        return None;
                    }
                    label_before = label;
                    label = place + 1;
                }
                b'x' if place == label && is_encoded_label(&host[place..]) => return None,
                _ => {}
            }
            self.out.push(lower);
        }
        let trailing_dot = label == size;
        // The last label that is not empty.
        let last = if trailing_dot { label_before } else { label };
        match host.get(last) {
            _ if size == 0 => return None,
            Some(b'0'..=b'9') if trailing_dot || !is_dotted_quad(&self.out[begin..]) => {
                return None
            }
            _ => {}
        }
        Some(host.get(size + 1..).unwrap_or(&[]))
    }

    /// Writes a port unless it is the usual one; false when it is out of the ordinary.
    fn port(&mut self, digits: &[u8], usual: u32) -> bool {
        if digits.len() > 5 || !digits.iter().all(u8::is_ascii_digit) {
            return false;
        }
        let port = digits.iter().fold(0, |port, digit| port * 10 + u32::from(digit - b'0'));
        if port > 65_535 {
            return false;
        }
        if !digits.is_empty() && port != usual {
            self.out.push(b':');
            self.out.extend_from_slice(port.to_string().as_bytes());
        }
        true
    }

    /// Writes a path, and the query behind it, from the first byte of a segment on; `out` ends with the slash before
    /// it, and its path begins `path_start` bytes from the row's start. False when the row is out of the ordinary.
    fn path(&mut self, mut at: usize, path_start: usize) -> bool {
        let text = self.text;
        let mut kept = at;
        loop {
            while at < text.len() && IN_PATH[text[at] as usize] == KEEP {
                at += 1;
            }
            let Some(&byte) = text.get(at) else {
                self.out.extend_from_slice(&text[kept..at]);
                return true;
            };
            let action = IN_PATH[byte as usize];
            if matches!(action, DOT | PERCENT) && (at == 0 || matches!(text[at - 1], b'/' | b'\\'))
            {
                if let Some((size, up)) = dots(&text[at..]) {
                    self.out.extend_from_slice(&text[kept..at]);
                    if up {
                        self.leave_directory(self.start + path_start);
                    }
                    at += size;
                    at += usize::from(matches!(text.get(at), Some(b'/' | b'\\')));
                    kept = at;
                    continue;
                }
            }
            if action == DOT {
                at += 1;
                continue;
            }
            self.out.extend_from_slice(&text[kept..at]);
            match action {
                QUERY => return self.query(at),
                FRAGMENT => return true,
                PERCENT => at = self.triplet(at),
                ENCODE => at = self.encoded(at),
                BACKSLASH => {
                    self.out.push(b'/');
                    at += 1;
                }
                HIGH if self.is_utf8() => at = self.encoded(at),
                _ => return false,
            }
            kept = at;
        }
    }

    /// Takes the last segment off the path; `out` ends with a slash before and after.
    fn leave_directory(&mut self, root: usize) {
        let slash = self.out.len() - 1;
        if slash > root {
            let before = self.out[root..slash].iter().rposition(|&byte| byte == b'/');
            self.out.truncate(root + before.unwrap_or(0) + 1);
        }
    }

    /// Writes a query from its question mark on, unless it is empty. False when the row is out of the ordinary.
    fn query(&mut self, mut at: usize) -> bool {
        let text = self.text;
        let begin = self.out.len();
        let mut kept = at;
        at += 1;
        loop {
            while at < text.len() && IN_QUERY[text[at] as usize] == KEEP {
                at += 1;
            }
            self.out.extend_from_slice(&text[kept..at]);
            let Some(&byte) = text.get(at) else {
                break;
            };
            match IN_QUERY[byte as usize] {
                FRAGMENT => break,
                PERCENT => at = self.triplet(at),
                ENCODE => at = self.encoded(at),
                HIGH if self.is_utf8() => at = self.encoded(at),
                _ => return false,
            }
            kept = at;
        }
        if self.out.len() == begin + 1 {
            self.out.truncate(begin);
        }
        true
    }

    /// Writes the byte at `at` as a triplet.
    fn encoded(&mut self, at: usize) -> usize {
        let byte = self.text[at];
        self.out.extend_from_slice(&triplet_of(byte));
        at + 1
    }

    /// Writes what a percent sign begins; gives where the next byte lies.
    fn triplet(&mut self, at: usize) -> usize {
        let text = self.text;
        let digit = |place: usize| text.get(place).map_or(16, |&byte| DIGIT[byte as usize]);
        let (high, low) = (digit(at + 1), digit(at + 2));
        if high < 16 && low < 16 {
            let octet = high << 4 | low;
            if UNRESERVED[octet as usize] {
                self.out.push(octet);
            } else {
                self.out.extend_from_slice(&triplet_of(octet));
            }
            return at + 3;
        }
        // A stray sign: the triplet behind it stays, where decoding that would complete another.
        let next = at + 1 + usize::from(high < 16);
        if let Some(&[b'%', high, low]) = text.get(next..next + 3) {
            let completes = (high == b'3' && low.is_ascii_digit())
                || (matches!(high, b'4' | b'6') && matches!(low, b'1'..=b'6'));
            if completes {
                self.out.extend_from_slice(&text[at..next + 3]);
                return next + 3;
            }
        }
        self.out.push(b'%');
        at + 1
    }

    fn is_utf8(&mut self) -> bool {
        // Asked at the first byte of a path or query that is no ASCII: rows that have one are rare.
        *self.utf8.get_or_insert_with(|| std::str::from_utf8(self.row).is_ok())
    }
}

/// Where the colon of a scheme is passed: RFC 3986 section 3.1. None when the text begins with none.
fn scheme_end(text: &[u8]) -> Option<usize> {
    if !text.first()?.is_ascii_alphabetic() {
        return None;
    }
    let size = text
        .iter()
        .position(|&byte| !(byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.')))?;
    (text[size] == b':').then_some(size + 1)
}

/// Bytes of a segment of one dot, or two (then true), percent-encoded ones included; None for any other segment.
fn dots(text: &[u8]) -> Option<(usize, bool)> {
    let one = |text: &[u8]| match text {
        [b'.', ..] => 1,
        [b'%', b'2', b'e' | b'E', ..] => 3,
        _ => 0,
    };
    let first = one(text);
    if first == 0 {
        return None;
    }
    let size = first + one(&text[first..]);
    matches!(text.get(size), None | Some(b'/' | b'\\' | b'?' | b'#'))
        .then_some((size, size > first))
}

/// Where a host ends that is spelled already, when nothing but a path, query or fragment follows; None otherwise.
fn plain_host_end(text: &[u8], start: usize) -> Option<usize> {
    let mut end = start;
    loop {
        let label = end;
        while end < text.len() && IN_PLAIN_LABEL[text[end] as usize] {
            end += 1;
        }
        if end == label || is_encoded_label(&text[label..end]) {
            return None;
        }
        match text.get(end) {
            Some(b'.') => end += 1,
            None | Some(b'/' | b'?' | b'#') if !text[label].is_ascii_digit() => return Some(end),
            _ => return None,
        }
    }
}

fn is_encoded_label(label: &[u8]) -> bool {
    label.len() >= 4 && label[..4].eq_ignore_ascii_case(b"xn--")
}

/// Whether this is an IPv4 address as it is written canonically.
fn is_dotted_quad(host: &[u8]) -> bool {
    let mut parts = 0;
    let all = host.split(|&byte| byte == b'.').all(|part| {
        parts += 1;
        matches!(
            part,
            [b'0'..=b'9']
                | [b'1'..=b'9', b'0'..=b'9']
                | [b'1', b'0'..=b'9', b'0'..=b'9']
                | [b'2', b'0'..=b'4', b'0'..=b'9']
                | [b'2', b'5', b'0'..=b'5']
        )
    });
    all && parts == 4
}

fn triplet_of(octet: u8) -> [u8; 3] {
    const UPPER: &[u8; 16] = b"0123456789ABCDEF";
    [b'%', UPPER[(octet >> 4) as usize], UPPER[(octet & 15) as usize]]
}

/// The columns of many rows, numbers in little endian.
pub struct Columns {
    /// The canonical texts one after the other; rows that are not spelled have none.
    pub arena: Vec<u8>,
    /// Where each row begins, and where the last ends: i64.
    pub offsets: Vec<u8>,
    /// `State` of each row.
    pub states: Vec<u8>,
    /// `HTTPS` and `USERINFO` of each row.
    pub flags: Vec<u8>,
    /// `Parts::host_length` of each row: u32.
    pub host_lengths: Vec<u8>,
    /// `Parts::path_start` of each row: u32.
    pub path_starts: Vec<u8>,
    /// The fingerprint of each text, empty without a key: u64.
    pub fingerprints: Vec<u8>,
    /// The fingerprint of each host, empty without a key: u64.
    pub host_fingerprints: Vec<u8>,
}

/// Spells rows into columns, in one pass. A row of None is invalid.
#[must_use]
pub fn spell_rows<'a>(
    rows: impl ExactSizeIterator<Item = Option<&'a [u8]>>,
    page: Option<&Page>,
    print: Option<&Fingerprinter>,
) -> Columns {
    let count = rows.len();
    let hashes = if print.is_some() { 8 * count } else { 0 };
    let mut columns = Columns {
        arena: Vec::with_capacity(96 * count),
        offsets: Vec::with_capacity(8 * count + 8),
        states: Vec::with_capacity(count),
        flags: Vec::with_capacity(count),
        host_lengths: Vec::with_capacity(4 * count),
        path_starts: Vec::with_capacity(4 * count),
        fingerprints: Vec::with_capacity(hashes),
        host_fingerprints: Vec::with_capacity(hashes),
    };
    columns.offsets.extend_from_slice(&0_i64.to_le_bytes());
    // The host of the row before, and its hash: rows of one host tend to stand together.
    let mut host_before: (usize, usize, u64) =
        (0, 0, print.map_or(0, |print| print.fingerprint(b"")));
    for row in rows {
        let start = columns.arena.len();
        let (state, parts) = match row {
            Some(row) => spell(row, page, &mut columns.arena),
            None => NO_URL,
        };
        columns.offsets.extend_from_slice(&(columns.arena.len() as i64).to_le_bytes());
        columns.states.push(state as u8);
        columns.flags.push(parts.flags);
        columns.host_lengths.extend_from_slice(&parts.host_length.to_le_bytes());
        columns.path_starts.extend_from_slice(&parts.path_start.to_le_bytes());
        if let Some(print) = print {
            let hash = print.fingerprint(&columns.arena[start..]);
            columns.fingerprints.extend_from_slice(&hash.to_le_bytes());
            let begin = if parts.host_length == 0 { start } else { start + parts.host_start() };
            let host = (begin, begin + parts.host_length as usize);
            if columns.arena[host.0..host.1] != columns.arena[host_before.0..host_before.1] {
                host_before.2 = print.fingerprint(&columns.arena[host.0..host.1]);
            }
            host_before = (host.0, host.1, host_before.2);
            columns.host_fingerprints.extend_from_slice(&host_before.2.to_le_bytes());
        }
    }
    columns
}

/// Numbers equal texts: for each the number of its text, in order of first appearance, and the first row of each
/// number; both u32, little endian.
#[must_use]
pub fn distinct<'a>(texts: impl ExactSizeIterator<Item = &'a [u8]>) -> (Vec<u8>, Vec<u8>) {
    let mut numbers: HashMap<&[u8], u32> = HashMap::new();
    let mut codes = Vec::with_capacity(4 * texts.len());
    let mut firsts = Vec::new();
    let mut before: Option<(&[u8], u32)> = None;
    for (row, text) in texts.enumerate() {
        let number = match before {
            Some((known, number)) if known == text => number,
            _ => {
                let next = numbers.len() as u32;
                let number = *numbers.entry(text).or_insert(next);
                if number == next {
                    firsts.extend_from_slice(&(row as u32).to_le_bytes());
                }
                number
            }
        };
        before = Some((text, number));
        codes.extend_from_slice(&number.to_le_bytes());
    }
    (codes, firsts)
}

/// Of the spans that are wanted each text where it appears first: the texts one after the other, where each begins and
/// the last ends, and the rows.
#[must_use]
pub fn unique(
    arena: &[u8],
    spans: &[(usize, usize)],
    wanted: &[u8],
) -> (Vec<u8>, Vec<i64>, Vec<u32>) {
    let (mut texts, mut offsets, mut rows) = (Vec::new(), vec![0], Vec::new());
    let mut known: HashSet<&[u8]> = HashSet::with_capacity(spans.len());
    for (row, (&(start, end), _)) in
        spans.iter().zip(wanted).enumerate().filter(|(_, (_, &wanted))| wanted != 0)
    {
        let text = &arena[start..end];
        if known.insert(text) {
            texts.extend_from_slice(text);
            offsets.push(texts.len() as i64);
            rows.push(row as u32);
        }
    }
    (texts, offsets, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_row_of_each_wanted_text_is_taken() {
        let spans = [(0, 1), (1, 2), (2, 3), (0, 0), (3, 4)];
        let (texts, offsets, rows) = unique(b"abab", &spans, &[0, 1, 1, 1, 1]);
        assert_eq!((b"ba".to_vec(), vec![0, 1, 2, 2], vec![1, 2, 3]), (texts, offsets, rows));
    }

    fn spelled(row: &str, page: Option<&str>) -> Result<String, State> {
        let page = page.map(|page| Page::of(page.as_bytes()).unwrap());
        let mut out = b"before".to_vec();
        let (state, _) = spell(row.as_bytes(), page.as_ref(), &mut out);
        assert!(out.starts_with(b"before"));
        if state == State::Spelled {
            Ok(String::from_utf8(out.split_off(6)).unwrap())
        } else {
            assert_eq!(6, out.len());
            Err(state)
        }
    }

    #[test]
    fn ordinary_urls_are_spelled() {
        for (row, expected) in [
            ("HTTP://Example.ORG:80/a/../b?x=%7e#top", "http://example.org/b?x=~"),
            ("https://u:p@a_b.c.:0443?", "https://a_b.c./"),
            (" http://1.2.3.4/a b\u{e9}?'\\\n", "http://1.2.3.4/a%20b%C3%A9?%27\\"),
            ("http://a//b/./%2E%2e/c/..", "http://a//"),
            ("http://\"a$\\b\\..\\c", "http://\"a$/c"),
            ("http://a/%%36%31%e9", "http://a/%%361%E9"),
        ] {
            assert_eq!(Ok(expected.to_owned()), spelled(row, None), "{row}");
        }
    }

    #[test]
    fn references_are_resolved() {
        let page = Some("http://a:8080/b/c/d;p?q");
        for (row, expected) in [
            ("", "http://a:8080/b/c/d;p?q"),
            ("?", "http://a:8080/b/c/d;p"),
            ("?y#s", "http://a:8080/b/c/d;p?y"),
            ("g;x=1/../y", "http://a:8080/b/c/y"),
            ("../../../g", "http://a:8080/g"),
            ("..", "http://a:8080/b/"),
            ("/./g", "http://a:8080/g"),
            ("//G", "http://g/"),
        ] {
            assert_eq!(Ok(expected.to_owned()), spelled(row, page), "{row}");
        }
    }

    #[test]
    fn odd_rows_are_marked() {
        for row in
            ["http://xn--a/", "http:/a", "http://1.2.3", "http://[::1]/", "http:\\\\a", "\u{e9}\tb"]
        {
            assert_eq!(Err(State::Odd), spelled(row, None), "{row}");
        }
        for row in ["", "a/b", "mailto:a", "//a/"] {
            assert_eq!(Err(State::Invalid), spelled(row, None), "{row}");
        }
    }

    #[test]
    fn equal_texts_have_one_number() {
        let texts: [&[u8]; 4] = [b"a", b"", b"a", b"b"];
        let (codes, firsts) = distinct(texts.into_iter());
        let read = |bytes: &[u8]| -> Vec<u32> {
            bytes.chunks(4).map(|four| u32::from_le_bytes(four.try_into().unwrap())).collect()
        };
        assert_eq!((vec![0, 1, 0, 2], vec![0, 1, 3]), (read(&codes), read(&firsts)));
    }
}
