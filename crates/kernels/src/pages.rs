//! Pages read in batches: the content of each, its text with SimHash and digest, its links canonical; and the links
//! that are followed, of all pages together. Semantics are written at the twin, `src/outrider/kernels/pages.py`.

use std::collections::{HashMap, HashSet};

use crate::digest::Digester;
use crate::html::decoded;
use crate::html::page::{self, Bounds, KINDS, LEADING};
use crate::simhash::SimHasher;
use crate::siphash::Fingerprinter;
use crate::urls::{self, Parts, State};

/// How much of a page is kept.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Its columns.
    pub bounds: Bounds,
    /// Characters of a base; a longer one counts as none.
    pub base_characters: usize,
    /// Bytes of links that lead on, the page's own URL counted with each, and as many of others. Links that repeat a URL
    /// that is kept take none of that room, and have as much again.
    pub links_bytes: usize,
    /// Bytes of links that are spelled before the bound is looked at, as they are written, the base counted with each.
    pub step_bytes: usize,
    /// Bytes of a URL that is kept: a longer one is no canonical URL, and counts as the longest among links.
    pub url_bytes: usize,
    /// Characters of a title.
    pub title_characters: usize,
    /// Characters of a description.
    pub description_characters: usize,
    /// Directives of robots.
    pub directives: usize,
    /// Characters of one of them.
    pub directive_characters: usize,
    /// Words that enter a SimHash.
    pub words: usize,
    /// Words of a block that enters a digest.
    pub block_words: usize,
}

/// How a body is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// HTML.
    Html = 0,
    /// HTML that was sent as XHTML.
    Xhtml = 1,
    /// Text without markup.
    Text = 2,
}

/// Which links of a page are followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Follow {
    /// The links that neither the page nor their rel forbids.
    AsSaid = 0,
    /// All.
    All = 1,
    /// None: what came with the page forbids it.
    None = 2,
}

/// A page to be read.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// Its bytes.
    pub body: &'a [u8],
    /// Its canonical URL.
    pub url: &'a str,
    /// The encoding that its transport named.
    pub label: Option<&'a str>,
    /// How it is read.
    pub kind: Kind,
    /// Which of its links are followed.
    pub follow: Follow,
}

/// The content of a page; one of plain text has charset, text and its likeness only.
#[derive(Debug, Default)]
pub struct Values {
    /// The name of the encoding, in lower case.
    pub charset: String,
    /// One line.
    pub title: String,
    /// One line.
    pub description: String,
    /// A language tag.
    pub language: Option<String>,
    /// Directives of robots, in order.
    pub robots: Vec<String>,
    /// Seconds and canonical address of a refresh.
    pub refresh: Option<(u32, String)>,
    /// The URL that links are relative to; None for the page's own.
    pub base: Option<String>,
    /// The address of rel=canonical.
    pub canonical: Option<String>,
    /// Links behind the bounds.
    pub left_out: u64,
    /// The visible text, in UTF-8.
    pub text: Vec<u8>,
    /// The SimHash of the text.
    pub simhash: u64,
    /// How many different shingles the SimHash is made of.
    pub shingles: usize,
    /// The digest of the text.
    pub digest: u64,
    /// How many links the page has.
    pub links: usize,
    /// How many different ones of those that lead on are followed.
    pub followed: usize,
    /// How many are not.
    pub left_alone: usize,
}

/// The links of one page in columns, in order.
#[derive(Debug, Default)]
pub struct Links {
    /// The canonical URLs, one after the other.
    pub arena: Vec<u8>,
    /// Where each ends.
    pub ends: Vec<u32>,
    /// Their parts.
    pub parts: Vec<Parts>,
    /// The other columns.
    pub said: page::Links,
}

impl Links {
    /// 1 for a row that leads on, else 0.
    fn sort(&self, row: usize) -> usize {
        usize::from(self.said.kinds[row] < LEADING)
    }

    fn start(&self, row: usize) -> usize {
        row.checked_sub(1).map_or(0, |before| self.ends[before] as usize)
    }

    fn text(&self, row: usize) -> &[u8] {
        &self.arena[self.start(row)..self.ends[row] as usize]
    }
}

/// The links of all pages that are followed, each once a page, in order.
#[derive(Debug, Default)]
pub struct Followed {
    /// The canonical URLs, one after the other.
    pub arena: Vec<u8>,
    /// Where each begins, and where the last ends.
    pub offsets: Vec<i64>,
    /// Their parts.
    pub parts: Vec<Parts>,
    /// Their fingerprints, where a key was given.
    pub hashes: Vec<u64>,
    /// The fingerprints of their hosts.
    pub host_hashes: Vec<u64>,
}

/// How a batch is read.
pub struct Reader<'k> {
    limits: Limits,
    agent: Option<&'k str>,
    likeness: &'k Fingerprinter,
    print: Option<&'k Fingerprinter>,
    hasher: SimHasher,
    digester: Digester,
    /// Where the host of the last row that was followed begins and ends, and its fingerprint.
    host_before: (usize, usize, u64),
    /// The links that were followed up to now.
    pub followed: Followed,
}

impl<'k> Reader<'k> {
    /// agent: the name in lower case to which robots metas may speak; likeness: the key of SimHash and digest; print:
    /// that of the links that are followed.
    #[must_use]
    pub fn new(
        limits: Limits,
        agent: Option<&'k str>,
        likeness: &'k Fingerprinter,
        print: Option<&'k Fingerprinter>,
    ) -> Self {
        let host_before = (0, 0, print.map_or(0, |print| print.fingerprint(b"")));
        let followed = Followed { offsets: vec![0], ..Followed::default() };
        Self {
            limits,
            agent,
            likeness,
            print,
            hasher: SimHasher::default(),
            digester: Digester::default(),
            host_before,
            followed,
        }
    }

    /// Reads a page; None for one that takes more than kernels: nothing of it is followed then.
    pub fn read(&mut self, given: Given<'_>) -> Option<(Values, Links)> {
        let (mut values, links) = match given.kind {
            Kind::Text => (self.text(given), Links::default()),
            Kind::Html | Kind::Xhtml => self.html(given)?,
        };
        let limits = &self.limits;
        (values.simhash, values.shingles) =
            self.hasher.simhash(&values.text, self.likeness, limits.words);
        values.digest = self.digester.text_digest(&values.text, self.likeness, limits.block_words);
        values.links = links.said.kinds.len();
        let said = |word: &str| values.robots.iter().any(|other| other == word);
        let none = given.follow == Follow::None
            || (given.follow == Follow::AsSaid && (said("nofollow") || said("none")));
        let refused: Vec<bool> = links
            .said
            .rel_names
            .iter()
            .map(|rel| {
                none || (given.follow == Follow::AsSaid && rel.split(' ').any(is_unfollowed))
            })
            .collect();
        (values.followed, values.left_alone) = self.follow(&links, &refused);
        Some((values, links))
    }

    fn text(&self, given: Given<'_>) -> Values {
        let found = decoded(given.body, given.label, false, false);
        let text = page::cut(&found.text, self.limits.bounds.text_bytes).into();
        Values { charset: found.encoding.name().to_ascii_lowercase(), text, ..Values::default() }
    }

    fn html(&self, given: Given<'_>) -> Option<(Values, Links)> {
        let limits = &self.limits;
        let mut own = Vec::with_capacity(given.url.len());
        let (state, _) = urls::spell(given.url.as_bytes(), None, &mut own);
        if state != State::Spelled || own != given.url.as_bytes() {
            return None;
        }
        let page = page::read(given.body, given.label, given.kind == Kind::Xhtml, limits.bounds);
        let here = urls::Page::of(given.url.as_bytes())?;
        let written = page.base.filter(|base| base.chars().count() <= limits.base_characters);
        let based = match written {
            Some(written) => spelled(&written, &here)?,
            None => None,
        };
        let base = based.as_ref().map(|base| urls::Page::of(base.as_bytes()));
        let base = base.unwrap_or(urls::Page::of(given.url.as_bytes()))?;
        let refresh = match page.refresh {
            None => None,
            Some((seconds, address)) if address.is_empty() => Some((seconds, given.url.to_owned())),
            Some((seconds, address)) => spelled(&address, &base)?.map(|target| (seconds, target)),
        };
        let description = page.metas.iter().filter(|(name, _)| name == "description");
        let description = description
            .map(|(_, content)| one_line(content, limits.description_characters))
            .find(|line| !line.is_empty());
        let mut values = Values {
            charset: page.charset,
            title: one_line(page.title.as_deref().unwrap_or(""), limits.title_characters),
            description: description.unwrap_or_default(),
            language: page.language.as_deref().and_then(language_tag),
            robots: directives(&page.metas, self.agent, limits)?,
            refresh,
            left_out: page.left_out,
            text: page.text,
            ..Values::default()
        };
        let columns = Written {
            arena: page.arena.as_bytes(),
            offsets: &page.offsets,
            base: &base,
            base_bytes: based.as_ref().map_or(given.url.len(), String::len),
            page_bytes: given.url.len(),
        };
        let (links, left_out) = columns.spelled(page.links, limits)?;
        values.left_out += left_out;
        values.base = based.filter(|base| base != given.url);
        values.canonical = canonical(&links, limits.url_bytes);
        Some((values, links))
    }

    /// Takes in the links that lead on, each once, but for those of refused rels: how many are taken, and how many
    /// other ones there are.
    fn follow(&mut self, links: &Links, refused: &[bool]) -> (usize, usize) {
        let before = self.followed.parts.len();
        let mut known: HashMap<&[u8], bool> = HashMap::new();
        // Rows with fragments of one page stand together.
        let mut last: (&[u8], bool) = (b"", true);
        for row in (0..links.said.kinds.len()).filter(|row| links.said.kinds[*row] < LEADING) {
            let text = links.text(row);
            let wanted = !refused[links.said.rels[row] as usize];
            if text == last.0 && (last.1 || !wanted) {
                continue;
            }
            let taken = known.entry(text).or_insert(false);
            if wanted && !*taken {
                *taken = true;
                self.take(text, links.parts[row]);
            }
            last = (text, *taken);
        }
        let taken = self.followed.parts.len() - before;
        (taken, known.len() - taken)
    }

    fn take(&mut self, text: &[u8], parts: Parts) {
        let followed = &mut self.followed;
        let start = followed.arena.len();
        followed.arena.extend_from_slice(text);
        followed.offsets.push(followed.arena.len() as i64);
        followed.parts.push(parts);
        if let Some(print) = self.print {
            followed.hashes.push(print.fingerprint(text));
            let from = start + parts.host_start();
            let (first, last, hash) = &mut self.host_before;
            let host = &followed.arena[from..from + parts.host_length as usize];
            if *host != followed.arena[*first..*last] {
                *hash = print.fingerprint(host);
            }
            (*first, *last) = (from, from + parts.host_length as usize);
            followed.host_hashes.push(*hash);
        }
    }
}

/// Links as they are written.
struct Written<'p> {
    arena: &'p [u8],
    offsets: &'p [i64],
    base: &'p urls::Page<'p>,
    base_bytes: usize,
    page_bytes: usize,
}

impl Written<'_> {
    /// The links that are URLs, with the other columns of all, and how many others stood behind the bound of their sort;
    /// None if one takes a full parser.
    ///
    /// A relative link has the length of its base, too: so they are spelled piece by piece until the bounds are reached.
    fn spelled(&self, said: page::Links, limits: &Limits) -> Option<(Links, u64)> {
        let rows = said.kinds.len();
        let mut links = Links { said, ..Links::default() };
        let bytes = self.size(rows).min(limits.step_bytes);
        links.arena.reserve(bytes);
        links.ends.reserve(rows);
        links.parts.reserve(rows);
        // Different URLs and repetitions need not be told apart while all together have less than there is for either.
        let mut plenty = [limits.links_bytes; 2];
        let mut rooms: [Option<Room>; 2] = [None, None];
        let (mut left, mut left_out) = (Vec::new(), 0);
        let mut first = 0;
        while first < rows {
            let last = self.piece(first, rows, limits.step_bytes);
            let open = |row: usize| {
                let sort = links.sort(row);
                rooms[sort].as_ref().map_or(plenty[sort], |room| room.different) > 0
            };
            if last - first < rows && !(first..last).any(open) {
                left.extend(first..last);
                left_out += (last - first) as u64;
                first = last;
                continue;
            }
            for row in first..last {
                let start = links.arena.len();
                let (state, parts) = urls::spell(self.text(row), Some(self.base), &mut links.arena);
                if state == State::Odd {
                    return None;
                }
                let (cost, sort) = (self.cost(links.arena.len() - start, limits), links.sort(row));
                let mut kept = state == State::Spelled;
                if kept && cost < plenty[sort] {
                    plenty[sort] -= cost;
                } else if kept {
                    plenty[sort] = 0;
                    let room =
                        rooms[sort].get_or_insert_with(|| self.room(&links, sort, &left, limits));
                    kept = room.take(&links.arena[start..], cost);
                }
                if kept {
                    links.ends.push(links.arena.len() as u32);
                    links.parts.push(parts);
                } else {
                    links.arena.truncate(start);
                    left.push(row);
                }
            }
            first = last;
        }
        if !left.is_empty() {
            links.leave_out(&left);
        }
        left_out += rooms.iter().flatten().map(|room| room.left_out).sum::<u64>();
        Some((links, left_out))
    }

    /// The room of a sort that the rows up to now leave: the URLs of all are kept, but for those of `left`.
    fn room(&self, links: &Links, sort: usize, left: &[usize], limits: &Limits) -> Room {
        let mut room = Room {
            different: limits.links_bytes,
            repeated: limits.links_bytes,
            known: HashSet::new(),
            left_out: 0,
        };
        let mut left = left.iter().peekable();
        let kept = (0..links.said.kinds.len()).filter(|row| left.next_if_eq(&row).is_none());
        for (place, _) in
            (0..links.ends.len()).zip(kept).filter(|(_, row)| links.sort(*row) == sort)
        {
            let text = links.text(place);
            room.take(text, self.cost(text.len(), limits));
        }
        room
    }

    /// Bytes that a link takes; one too long to be kept takes those of the longest that is kept.
    fn cost(&self, bytes: usize, limits: &Limits) -> usize {
        bytes.min(limits.url_bytes) + self.page_bytes
    }

    fn text(&self, row: usize) -> &[u8] {
        &self.arena[self.offsets[row] as usize..self.offsets[row + 1] as usize]
    }

    /// Bytes of the first rows, about, once they are absolute.
    fn size(&self, rows: usize) -> usize {
        self.offsets[rows] as usize + rows * self.base_bytes
    }

    /// Where the piece ends that begins with a row: with the row that reaches the next multiple of a step.
    fn piece(&self, first: usize, rows: usize, step: usize) -> usize {
        if self.size(rows) <= step {
            return rows;
        }
        let mark = self.size(first).div_ceil(step).max(1) * step;
        (first + 1..rows).find(|row| self.size(*row) > mark).unwrap_or(rows)
    }
}

/// The bytes that further links of one sort may have.
struct Room {
    /// For links that name another URL than all that are kept.
    different: usize,
    /// For links that repeat one.
    repeated: usize,
    /// The URLs that are kept.
    known: HashSet<Vec<u8>>,
    /// How many that repeat none were too many.
    left_out: u64,
}

impl Room {
    /// Whether a link is kept; behind the first one that is left out of those that repeat none, or of those that repeat
    /// one, there is none of them.
    fn take(&mut self, text: &[u8], cost: usize) -> bool {
        let repeats = self.known.contains(text);
        let left = if repeats { &mut self.repeated } else { &mut self.different };
        let rest = left.checked_sub(cost);
        *left = rest.unwrap_or(0);
        if !repeats && rest.is_some() {
            self.known.insert(text.to_vec());
        } else if !repeats {
            self.left_out += 1;
        }
        rest.is_some()
    }
}

impl Links {
    /// Takes rows, in order, out of the columns that have all.
    fn leave_out(&mut self, left: &[usize]) {
        let said = &mut self.said;
        let mut keep = vec![true; said.kinds.len()];
        left.iter().for_each(|row| keep[*row] = false);
        fn kept<T>(column: &mut Vec<T>, keep: &[bool]) {
            let mut marks = keep.iter();
            column.retain(|_| marks.next().copied().unwrap_or(true));
        }
        kept(&mut said.kinds, &keep);
        kept(&mut said.rels, &keep);
        kept(&mut said.text_starts, &keep);
        kept(&mut said.text_ends, &keep);
        said.alternates.retain(|(row, _, _)| keep[*row as usize]);
        for (row, _, _) in &mut said.alternates {
            *row -= left.partition_point(|other| *other < *row as usize) as u32;
        }
    }
}

fn is_unfollowed(word: &str) -> bool {
    matches!(word, "nofollow" | "ugc" | "sponsored")
}

/// The canonical text of an address: None if it takes a full parser, None in it for one that is no URL.
fn spelled(written: &str, base: &urls::Page<'_>) -> Option<Option<String>> {
    let mut out = Vec::new();
    match urls::spell(written.as_bytes(), Some(base), &mut out).0 {
        State::Spelled => String::from_utf8(out).ok().map(Some),
        State::Invalid => Some(None),
        State::Odd => None,
    }
}

/// The address of the first link with rel=canonical, if it is not too long to be one.
fn canonical(links: &Links, url_bytes: usize) -> Option<String> {
    let names = &links.said.rel_names;
    let named: Vec<bool> =
        names.iter().map(|name| name.split(' ').any(|word| word == "canonical")).collect();
    let is_named = |row: &usize| {
        KINDS[usize::from(links.said.kinds[*row])] == "link"
            && named[links.said.rels[*row] as usize]
    };
    let row = (0..links.said.kinds.len()).find(is_named)?;
    let text = links.text(row);
    (text.len() <= url_bytes).then(|| String::from_utf8_lossy(text).into_owned())
}

/// White space as Python's `str.split` has it.
fn is_blank(character: char) -> bool {
    character.is_whitespace() || matches!(character, '\x1c'..='\x1f')
}

/// Words parted by one blank, up to so many characters; of the first four times as many characters of a text.
fn one_line(text: &str, characters_max: usize) -> String {
    let mut line = String::new();
    let (mut left, mut parted) = (characters_max, false);
    for character in text.chars().take(4 * characters_max) {
        if is_blank(character) {
            parted = !line.is_empty();
            continue;
        }
        if parted && left > 0 {
            line.push(' ');
            left -= 1;
        }
        if left == 0 {
            break;
        }
        line.push(character);
        left -= 1;
        parted = false;
    }
    line
}

/// A declared language, if it is a tag: up to nine parts of up to eight letters, digits too in all but the first.
fn language_tag(declared: &str) -> Option<String> {
    const PARTS_MAX: usize = 9;
    const PART_BYTES_MAX: usize = 8;
    let tag = declared.trim_matches(is_blank);
    let mut parts = 0;
    let fit = tag.split('-').all(|part| {
        parts += 1;
        let octets = part.as_bytes();
        (1..=PART_BYTES_MAX).contains(&octets.len())
            && parts <= PARTS_MAX
            && octets
                .iter()
                .all(|octet| octet.is_ascii_alphabetic() || (parts > 1 && octet.is_ascii_digit()))
    });
    fit.then(|| tag.to_owned())
}

/// The metas of TDMRep, which are directives with a value.
const RESERVATIONS: [&str; 2] = ["tdm-reservation", "tdm-policy"];

/// The directives of metas that speak to all robots or to the agent, the first ones in order of their letters; None
/// where letters beyond ASCII would have to be lowered.
fn directives(
    metas: &[(String, String)],
    agent: Option<&str>,
    limits: &Limits,
) -> Option<Vec<String>> {
    let mut found = Vec::new();
    for (name, content) in metas {
        let name = name.trim_matches(is_blank);
        let reserves = RESERVATIONS.contains(&name);
        if name != "robots" && Some(name) != agent && !reserves {
            continue;
        }
        let most = limits.directives * limits.directive_characters;
        let mut content: String = content.chars().take(most).collect();
        if !content.is_ascii() {
            return None;
        }
        if reserves {
            // The path of a policy's URL may have capitals.
            found.push(format!("{name}:{}", content.trim_matches(is_blank)));
            continue;
        }
        content.make_ascii_lowercase();
        for part in content.split(',') {
            let words = part.split(is_blank).filter(|word| !word.is_empty());
            if part.contains(':') {
                found.push(words.collect::<Vec<_>>().join(" "));
            } else {
                found.extend(words.map(str::to_owned));
            }
        }
    }
    found.retain(|word| word.len() <= limits.directive_characters);
    found.sort_unstable();
    found.dedup();
    found.truncate(limits.directives);
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        bounds: Bounds {
            links: 100,
            text_bytes: 1_000,
            link_text_bytes: 20,
            metas: 10,
            attributes: 10,
            value_bytes: 1_000,
        },
        base_characters: 100,
        links_bytes: 10_000,
        step_bytes: 5_000,
        url_bytes: 1_000,
        title_characters: 10,
        description_characters: 10,
        directives: 4,
        directive_characters: 10,
        words: 1_000,
        block_words: 10,
    };

    fn given<'a>(markup: &'a str, url: &'a str, follow: Follow) -> Given<'a> {
        Given { body: markup.as_bytes(), url, label: None, kind: Kind::Html, follow }
    }

    fn read(markup: &str, follow: Follow) -> Option<(Values, Vec<String>)> {
        let print = Fingerprinter::new(b"0123456789abcdef");
        let mut reader = Reader::new(LIMITS, Some("bot"), &print, Some(&print));
        let (values, _) = reader.read(given(markup, "http://a.org/b/", follow))?;
        let followed = &reader.followed;
        let texts: Vec<String> = followed
            .offsets
            .windows(2)
            .map(|two| &followed.arena[two[0] as usize..two[1] as usize])
            .map(|text| String::from_utf8(text.to_vec()).unwrap())
            .collect();
        for (row, text) in texts.iter().enumerate() {
            assert_eq!(print.fingerprint(text.as_bytes()), followed.hashes[row]);
        }
        Some((values, texts))
    }

    #[test]
    fn links_are_followed_once_where_they_are_wanted_first() {
        let markup = "<a rel='x nofollow' href=c></a><a href='#d'></a><a href=c></a><a href=c#e></a><img src=i>\
                      <a rel=ugc href=f></a>";
        let (values, texts) = read(markup, Follow::AsSaid).unwrap();
        assert_eq!(vec!["http://a.org/b/", "http://a.org/b/c"], texts);
        assert_eq!((6, 2, 1), (values.links, values.followed, values.left_alone));
        assert_eq!(3, read(markup, Follow::All).unwrap().1.len());
        assert_eq!(3, read(markup, Follow::None).unwrap().0.left_alone);
    }

    #[test]
    fn what_takes_a_full_parser_is_left() {
        assert!(read("<a href='http://xn--a/'>", Follow::AsSaid).is_none());
        assert!(read("<base href='http://1.2/'>", Follow::AsSaid).is_none());
        assert!(read("<meta name=robots content=\u{130}>", Follow::AsSaid).is_none());
        assert!(read("<a href='http://[x'></a><a href=b>", Follow::AsSaid).is_none());
    }

    #[test]
    fn links_behind_the_bound_of_their_sort_are_counted() {
        let long = |name: &str| format!("<a href='{name}{}'></a>", "x".repeat(900));
        let markup =
            (0..30).map(|row| long(&row.to_string()) + "<img src=i><a href=http://::/></a>");
        let (values, texts) = read(&markup.collect::<String>(), Follow::AsSaid).unwrap_or_default();
        assert_eq!((0, 0), (texts.len(), values.links), "a host that is odd");
        let markup: String = (0..30).map(|row| long(&row.to_string()) + "<img src=i>").collect();
        let (values, texts) = read(&markup, Follow::AsSaid).unwrap();
        assert_eq!((10, 40, 20), (texts.len(), values.links, values.left_out));
    }

    #[test]
    fn values_are_lines_tags_and_words() {
        let markup = "<html lang=' de-AT '><title> a\u{a0}\x1fb  cdefghijkl</title>\
                      <meta name=robots content='B, a:  x ,c  d'><meta name=Bot content=NOFOLLOW,b><a href=x>";
        let (values, texts) = read(markup, Follow::AsSaid).unwrap();
        assert_eq!(
            ("a b cdefgh", Some("de-AT")),
            (values.title.as_str(), values.language.as_deref())
        );
        assert_eq!(vec!["a: x", "b", "c", "d"], values.robots);
        assert!(!texts.is_empty(), "the fifth directive is behind the bound");
    }
}
