//! The shapes of URLs, and marks of URLs to be looked at.
//!
//! Semantics are written at the twin, `src/outrider/kernels/shapes.py`.

use memchr::memchr;

/// The URL may have a session id.
pub const MAY_HAVE_SESSION: u8 = 1;
/// The URL may name a month.
pub const MAY_HAVE_MONTH: u8 = 2;
const ENDING_BYTES_MAX: usize = 5;

/// Authority, and what stands behind it, slash included. None where one of them is missing.
#[must_use]
pub fn split(url: &[u8]) -> Option<(&[u8], &[u8])> {
    let start = url.windows(3).position(|three| three == b"://")? + 3;
    let end = start + memchr(b'/', &url[start..])?;
    Some((&url[start..end], &url[end..]))
}

/// Appends the shape of what stands behind the host, its first `bytes_max` bytes.
pub fn shape(rest: &[u8], bytes_max: usize, out: &mut Vec<u8>) {
    let begin = out.len();
    let (path, query) = parted(rest, b'?');
    let mut names = path.split(|&octet| octet == b'/').skip(1).peekable();
    let mut nth = 0;
    while let Some(name) = names.next() {
        out.push(b'/');
        if names.peek().is_none() {
            last(name, out);
        } else if nth == 0 {
            digits_as_one(name, out);
        } else {
            out.extend_from_slice(kind(name));
        }
        nth += 1;
    }
    if let Some(query) = query.filter(|query| !query.is_empty()) {
        let mut asked: Vec<Vec<u8>> = query
            .split(|&octet| octet == b'&')
            .map(|one| {
                let mut name = Vec::new();
                digits_as_one(parted(one, b'=').0, &mut name);
                name
            })
            .collect();
        asked.sort();
        asked.dedup();
        out.push(b'?');
        out.extend_from_slice(&asked.join(&b'&'));
    }
    out.truncate(begin + bytes_max);
}

fn last(name: &[u8], out: &mut Vec<u8>) {
    match memchr::memrchr(b'.', name) {
        Some(dot) if name.len() - dot - 1 <= ENDING_BYTES_MAX => {
            out.extend_from_slice(kind(&name[..dot]));
            out.push(b'.');
            digits_as_one(&name[dot + 1..], out);
        }
        _ => out.extend_from_slice(kind(name)),
    }
}

fn kind(name: &[u8]) -> &'static [u8] {
    if name.is_empty() {
        b""
    } else if !name.iter().any(u8::is_ascii_digit) {
        b"a"
    } else if name.iter().any(u8::is_ascii_alphabetic) {
        b"a#"
    } else {
        b"#"
    }
}

fn digits_as_one(name: &[u8], out: &mut Vec<u8>) {
    let mut within = false;
    for &octet in name {
        let digit = octet.is_ascii_digit();
        if !digit {
            out.push(octet);
        } else if !within {
            out.push(b'#');
        }
        within = digit;
    }
}

fn parted(text: &[u8], mark: u8) -> (&[u8], Option<&[u8]>) {
    match memchr(mark, text) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}

/// How many slashes there are.
#[must_use]
pub fn slashes(rest: &[u8]) -> u32 {
    memchr::memchr_iter(b'/', rest).count() as u32
}

/// The marks of what stands behind the authority. sessions: names, in lower case, a line feed behind each.
#[must_use]
pub fn marks(rest: &[u8], sessions: &[u8]) -> u8 {
    let (path, query) = parted(rest, b'?');
    let mut session = memchr(b';', path).is_some() || path.windows(2).any(|two| two == b"/(");
    if !session {
        let mut asked = query.unwrap_or(b"").split(|&octet| octet == b'&');
        session = asked.any(|one| is_session(parted(one, b'=').0, sessions));
    }
    (u8::from(session) * MAY_HAVE_SESSION) | (u8::from(may_have_month(rest)) * MAY_HAVE_MONTH)
}

fn is_session(name: &[u8], sessions: &[u8]) -> bool {
    let name = &name[name.iter().take_while(|&&octet| octet == b'_').count()..];
    let mut known = sessions.split(|&octet| octet == b'\n');
    known.next_back();
    known.any(|known| match known.strip_suffix(b"*") {
        Some(begin) => name.get(..begin.len()).is_some_and(|name| name.eq_ignore_ascii_case(begin)),
        None => name.eq_ignore_ascii_case(known),
    })
}

fn may_have_month(rest: &[u8]) -> bool {
    let digit = |at: usize| rest.get(at).is_some_and(u8::is_ascii_digit);
    rest.iter().enumerate().any(|(at, octet)| {
        if !(b'2'..=b'9').contains(octet) || !(1..4).all(|more| digit(at + more)) {
            return false;
        }
        let parted = rest.get(at + 4).is_some_and(|mark| b"-/_.".contains(mark)) && digit(at + 5);
        let escaped =
            rest.get(at + 4..at + 7).is_some_and(|mark| mark.eq_ignore_ascii_case(b"%2f"))
                && digit(at + 7);
        parted
            || escaped
            || match at.checked_sub(2).map(|place| (rest[place], rest[place + 1])) {
                Some((letter, b'/')) => letter.eq_ignore_ascii_case(&b'r'),
                Some((letter, b'=')) => letter.is_ascii_alphabetic(),
                _ => false,
            }
    })
}
