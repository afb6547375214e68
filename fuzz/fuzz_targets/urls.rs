//! Any bytes as rows of URLs: no panic, nothing that grows beyond its bound, canonical text that is spelled as itself.

#![no_main]

use libfuzzer_sys::fuzz_target;
use outrider_kernels::siphash::Fingerprinter;
use outrider_kernels::urls::{distinct, spell, spell_rows, Page, State};

const PAGES: [&str; 4] = [
    "http://example.org/a/b?c/d",
    "https://x.org:81/%%36/q",
    "http://[::1]:8080/a//b/",
    "http://a/",
];

fuzz_target!(|data: &[u8]| {
    let Some((&choice, rows)) = data.split_first() else {
        return;
    };
    let page_text = PAGES.get(usize::from(choice) % (PAGES.len() + 1));
    let page = page_text.map(|text| Page::of(text.as_bytes()).expect("a canonical URL"));
    let rows: Vec<&[u8]> = rows.split(|&byte| byte == 0xff).collect();
    for row in &rows {
        one(row, page.as_ref(), page_text.map_or(0, |text| text.len()));
    }
    batch(&rows, page.as_ref());
});

/// A row alone.
fn one(row: &[u8], page: Option<&Page>, page_size: usize) {
    let mut text = Vec::new();
    let (state, parts) = spell(row, page, &mut text);
    if state != State::Spelled {
        assert!(text.is_empty());
        return;
    }
    assert!(text.iter().all(u8::is_ascii_graphic));
    assert!(text.len() <= page_size + 3 * row.len() + 16);
    assert_eq!(text[parts.path_start as usize], b'/');
    let host = &text[parts.host_start()..parts.host_start() + parts.host_length as usize];
    assert!(!host.is_empty() && !host.iter().any(|byte| b"/?#@".contains(byte)));
    let mut again = Vec::new();
    match spell(&text, None, &mut again) {
        (State::Spelled, _) => assert_eq!(text, again),
        // The host of a page may be odd; its references are not.
        (state, _) => assert!(state == State::Odd && page.is_some()),
    }
}

/// All rows in columns, which say the same as each alone.
fn batch(rows: &[&[u8]], page: Option<&Page>) {
    let print = Fingerprinter::new(&[7; 16]);
    let columns = spell_rows(rows.iter().map(|&row| Some(row)), page, Some(&print));
    let mut arena = Vec::new();
    let mut texts: Vec<Vec<u8>> = Vec::new();
    for (row, &state) in rows.iter().zip(&columns.states) {
        let mut text = Vec::new();
        assert_eq!(spell(row, page, &mut text).0 as u8, state);
        arena.extend_from_slice(&text);
        texts.push(text);
    }
    assert_eq!(arena, columns.arena);
    assert_eq!(8 * (rows.len() + 1), columns.offsets.len());
    assert_eq!(8 * rows.len(), columns.fingerprints.len());
    assert_eq!(8 * rows.len(), columns.host_fingerprints.len());
    let (codes, firsts) = distinct(texts.iter().map(Vec::as_slice));
    assert_eq!(4 * rows.len(), codes.len());
    assert!(firsts.len() <= codes.len());
}
