//! Tags, attributes and text of the kernel's tokeniser, token for token those of html5ever's.
//!
//! `cargo run --release -- SECONDS FILE…`: each file first (as UTF-8, invalid bytes replaced), then messes drawn from
//! pieces of markup, from seed 1 on, for so many seconds. The first difference is printed and ends it.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use html5ever::tendril::StrTendril;
use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{
    BufferQueue, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts,
};
use outrider_kernels::html::references::{decode_into, Place};
use outrider_kernels::html::tokens::{tokenize, Attribute, Name, Next, Sink};

#[derive(Debug, PartialEq)]
enum Seen {
    Text(String),
    Start(String, Vec<(String, String)>, bool),
    End(String),
}

/// Text of neighbours belongs together.
fn push_text(seen: &mut Vec<Seen>, text: &str) {
    match seen.last_mut() {
        Some(Seen::Text(before)) => before.push_str(text),
        _ if text.is_empty() => {}
        _ => seen.push(Seen::Text(text.to_owned())),
    }
}

enum Content {
    Data,
    Rcdata,
    Rawtext,
    Script,
    Plaintext,
}

/// How the text behind a start tag is read, as the tree of a page without scripts would have it.
fn content_of(name: &str) -> Content {
    match name {
        "title" | "textarea" => Content::Rcdata,
        "style" | "xmp" | "iframe" | "noembed" | "noframes" => Content::Rawtext,
        "script" => Content::Script,
        "plaintext" => Content::Plaintext,
        _ => Content::Data,
    }
}

#[derive(Default)]
struct Ours(Vec<Seen>);

impl<'t> Sink<'t> for Ours {
    type Element = ();

    fn element(&self, _: Name<'t>) {}

    fn text(&mut self, whole: &'t str, from: usize, to: usize, place: Place) {
        let raw = &whole[from..to];
        let mut text = String::new();
        decode_into(&mut text, raw, place);
        push_text(&mut self.0, &text);
    }

    fn wants(&self, (): ()) -> bool {
        true
    }

    fn start(
        &mut self,
        (): (),
        name: &'t str,
        attributes: &[Attribute<'t>],
        closed: bool,
    ) -> Next {
        let mut known: Vec<(String, String)> = Vec::new();
        for attribute in attributes {
            let name = attribute.name.to_ascii_lowercase().replace('\0', "\u{fffd}");
            if known.iter().all(|(other, _)| *other != name) {
                let mut value = String::new();
                decode_into(&mut value, attribute.value, Place::Value);
                known.push((name, value));
            }
        }
        let name = name.to_ascii_lowercase().replace('\0', "\u{fffd}");
        let next = match content_of(&name) {
            Content::Data => Next::Data,
            Content::Rcdata => Next::Rcdata,
            Content::Rawtext => Next::Rawtext,
            Content::Script => Next::Script,
            Content::Plaintext => Next::Plaintext,
        };
        self.0.push(Seen::Start(name, known, closed));
        next
    }

    fn end(&mut self, (): (), name: &'t str) {
        self.0.push(Seen::End(name.to_ascii_lowercase().replace('\0', "\u{fffd}")));
    }

    fn foreign(&self) -> bool {
        false
    }
}

#[derive(Default)]
struct Theirs(RefCell<Vec<Seen>>);

impl TokenSink for Theirs {
    type Handle = ();

    fn process_token(&self, token: Token, _: u64) -> TokenSinkResult<()> {
        let mut seen = self.0.borrow_mut();
        match token {
            Token::CharacterTokens(text) => push_text(&mut seen, &text),
            Token::NullCharacterToken => push_text(&mut seen, "\0"),
            Token::TagToken(tag) if tag.kind == TagKind::EndTag => {
                seen.push(Seen::End(tag.name.to_string()));
            }
            Token::TagToken(tag) => {
                let attributes =
                    tag.attrs.iter().map(|one| (one.name.local.to_string(), one.value.to_string()));
                let attributes = attributes.collect();
                seen.push(Seen::Start(tag.name.to_string(), attributes, tag.self_closing));
                return match content_of(&tag.name) {
                    Content::Data => TokenSinkResult::Continue,
                    Content::Rcdata => TokenSinkResult::RawData(RawKind::Rcdata),
                    Content::Rawtext => TokenSinkResult::RawData(RawKind::Rawtext),
                    Content::Script => TokenSinkResult::RawData(RawKind::ScriptData),
                    Content::Plaintext => TokenSinkResult::Plaintext,
                };
            }
            _ => {}
        }
        TokenSinkResult::Continue
    }
}

/// The number of tokens that both read; None, and the first difference printed, where they read others.
fn alike(text: &str, name: &str) -> Option<usize> {
    let mut ours = Ours::default();
    tokenize(text, Next::Data, "", usize::MAX, &mut ours);
    let queue = BufferQueue::default();
    queue.push_back(StrTendril::from(text));
    let options = TokenizerOpts { discard_bom: false, ..TokenizerOpts::default() };
    let theirs = Tokenizer::new(Theirs::default(), options);
    let _ = theirs.feed(&queue);
    theirs.end();
    let theirs = theirs.sink.0.into_inner();
    if ours.0 == theirs {
        return Some(theirs.len());
    }
    let place = ours.0.iter().zip(&theirs).take_while(|(one, other)| one == other).count();
    println!("{name}: token {place} differs\n ours   {:?}", ours.0.get(place));
    println!(" theirs {:?}\n text   {:.400?}", theirs.get(place), text);
    None
}

const PIECES: &[&str] = &[
    "<a",
    "<A",
    "</a",
    "<p>",
    "</p>",
    "<title>",
    "</title",
    "<TextArea>",
    "</textarea>",
    "<script>",
    "</script",
    "<style>",
    "</style>",
    "<xmp>",
    "<iframe>",
    "</iframe>",
    "<plaintext>",
    "<svg>",
    "<![CDATA[",
    "]]>",
    "<!--",
    "-->",
    "--!>",
    "<!-->",
    "<!--->",
    "--",
    "<!",
    "<!doctype html>",
    "<!DOCTYPE",
    "<?",
    "</",
    "</>",
    "<",
    ">",
    "/",
    "=",
    "\"",
    "'",
    "`",
    " ",
    "\t",
    "\n",
    "\r",
    "\r\n",
    "\u{c}",
    "\0",
    "&",
    "&amp",
    "&amp;",
    "&ampx=",
    "&notit;",
    "&notin;",
    "&#",
    "&#x",
    "&#65",
    "&#x41;",
    "&#0;",
    "&#128;",
    "&#xD800;",
    "&#x110000;",
    "&#99999999999;",
    "&lt",
    "&copy=",
    "&copy",
    "&CounterClockwiseContourIntegral;",
    ";",
    "href",
    " href=",
    " HREF = \"",
    " x",
    " x=1",
    " x='",
    "a",
    "Z",
    "0",
    "é",
    "\u{fffd}",
    "\u{1f600}",
    "\u{feff}",
    "<!--<script>",
    "<script><!--<script",
    "</script>",
    "<noscript>",
    "<noframes>",
    "-",
    "!",
    "?",
    "]",
    "[",
];

/// A generator of numbers (SplitMix64): the same for the same seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((value ^ value >> 31) % most as u64) as usize
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(10);
    let (mut files, mut tokens) = (0, 0);
    for path in arguments {
        let octets = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let Some(count) = alike(&String::from_utf8_lossy(&octets), &path) else {
            std::process::exit(1);
        };
        tokens += count;
        files += 1;
    }
    let ends = Instant::now() + Duration::from_secs(seconds);
    let mut seed = 0;
    while Instant::now() < ends {
        for _ in 0..1_000 {
            seed += 1;
            let mut chance = Chance(seed);
            let count = 1 + chance.below(24);
            let text: String = (0..count).map(|_| PIECES[chance.below(PIECES.len())]).collect();
            let Some(count) = alike(&text, &format!("seed {seed}")) else {
                std::process::exit(1);
            };
            tokens += count;
        }
    }
    println!("{files} files and {seed} messes are read alike: {tokens} tokens");
}
