//! Verifies signed requests with the crate `web-bot-auth`: one line for each, `accepted` or `refused: REASON`.
//!
//! Input: the path of a JSON file, a list of requests with method, url, headers and the public key (JWK).

use serde::Deserialize;
use sfv::SerializeValue;
use std::collections::HashMap;
use web_bot_auth::components::{
    CoveredComponent, DerivedComponent, HTTPField, HTTPFieldParameters,
};
use web_bot_auth::keyring::{JSONWebKeySet, KeyRing, Thumbprintable};
use web_bot_auth::message_signatures::SignedMessage;
use web_bot_auth::{SignatureAgentLink, WebBotAuthVerifier};

#[derive(Deserialize)]
struct Message {
    method: String,
    url: String,
    headers: HashMap<String, String>,
    key: Thumbprintable,
}

impl Message {
    /// The authority, the path and the query with its question mark.
    fn parts(&self) -> (&str, &str, &str) {
        let rest = self.url.split_once("://").map_or("", |(_, rest)| rest);
        let (authority, target) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (path, query) = target.split_at(target.find('?').unwrap_or(target.len()));
        (authority, path, query)
    }

    fn field(&self, wanted: &HTTPField) -> Option<String> {
        let value = self
            .headers
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(&wanted.name))
            .map(|(_, value)| value.clone())?;
        match wanted.parameters.0.as_slice() {
            [] => Some(value),
            [HTTPFieldParameters::Key(key)] => member(&value, key),
            _ => None,
        }
    }
}

/// The serialised member of a dictionary (RFC 9421 section 2.1.2).
fn member(field: &str, key: &str) -> Option<String> {
    let members: sfv::Dictionary = sfv::Parser::new(field).parse_dictionary().ok()?;
    match members.get(key)? {
        sfv::ListEntry::Item(item) => Some(item.serialize_value()),
        sfv::ListEntry::InnerList(_) => None,
    }
}

impl SignedMessage for Message {
    fn lookup_component(&self, name: &CoveredComponent) -> Vec<String> {
        let (authority, path, query) = self.parts();
        let found = match name {
            CoveredComponent::HTTP(field) => self.field(field),
            CoveredComponent::Derived(DerivedComponent::Method { req: false }) => {
                Some(self.method.clone())
            }
            CoveredComponent::Derived(DerivedComponent::Authority { req: false }) => {
                Some(authority.to_ascii_lowercase())
            }
            CoveredComponent::Derived(DerivedComponent::Path { req: false }) => {
                Some(path.to_string())
            }
            CoveredComponent::Derived(DerivedComponent::Query { req: false }) => {
                Some(query.to_string())
            }
            CoveredComponent::Derived(DerivedComponent::TargetUri { req: false }) => {
                Some(self.url.clone())
            }
            CoveredComponent::Derived(_) => None,
        };
        found.into_iter().collect()
    }
}

/// Verifies a request. Returns the URL in Signature-Agent.
fn verified(message: &Message) -> Result<String, String> {
    let verifier = WebBotAuthVerifier::parse(message).map_err(|error| error.to_string())?;
    let [SignatureAgentLink::External(agent)] = verifier.get_signature_agents().as_slice() else {
        return Err("Signature-Agent is not one URL".to_string());
    };
    let agent = agent.clone();
    // The crate leaves this decision to its caller.
    let advisory = verifier.get_parsed_label().base.parameters.details.possibly_insecure(|_| false);
    if advisory.is_expired != Some(false) {
        return Err("it is expired".to_string());
    }
    let mut keys = KeyRing::default();
    let set = JSONWebKeySet { keys: vec![message.key.clone()] };
    if let Some(error) = keys.import_jwks(set).into_iter().flatten().next() {
        return Err(format!("the key cannot be read: {error:?}"));
    }
    verifier.verify(&keys, None).map_err(|error| error.to_string())?;
    Ok(agent)
}

fn main() {
    let path = std::env::args().nth(1).expect("the path of a JSON file");
    let text = std::fs::read(path).expect("a file that can be read");
    let messages: Vec<Message> = serde_json::from_slice(&text).expect("a list of requests");
    for message in &messages {
        match verified(message) {
            Ok(agent) => println!("accepted {agent}"),
            Err(reason) => println!("refused: {}", reason.replace('\n', " ")),
        }
    }
}
