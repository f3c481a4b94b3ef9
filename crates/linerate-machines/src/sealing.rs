//! What only the agents of a run may read: the whole plan, with its private key, its passwords and
//! its data. The broker, its disks and other agents see ciphertext.
//!
//! The plan is encrypted once (AES-256-GCM, RFC 5116), and that key is sealed to the X25519 key in
//! the card of each agent (the `xkeys` of NATS).

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use linerate_load::Plan;
use nkeys::{KeyPair, XKey};

use crate::BusError;
use crate::document::{AgentCard, SealedPlan};
use crate::message::digest_of;

/// In place of what is secret.
const HIDDEN: &str = "***";

/// Words in the names of header fields whose values are secret: those that reports hide too.
const SECRET_FIELDS: [&str; 8] =
    ["authorization", "cookie", "api-key", "apikey", "token", "secret", "password", "session"];

/// An agent's key for the runs of one start.
pub(crate) struct SealKey(XKey);

impl SealKey {
    pub(crate) fn new() -> SealKey {
        SealKey(XKey::new())
    }

    /// The public key, for the agent's card.
    pub(crate) fn public(&self) -> String {
        self.0.public_key()
    }
}

/// What an agent's NKEY signs: its seal key belongs to it.
fn claim(card: &AgentCard) -> Vec<u8> {
    format!("linerate seal key\n{}\n{}\n{}", card.name, card.incarnation, card.seal_key).into_bytes()
}

/// Signs the card's seal key by the agent's NKEY.
pub(crate) fn vouch(card: &mut AgentCard, seed: &str) -> Result<(), BusError> {
    let pair = KeyPair::from_seed(seed).map_err(BusError::new)?;
    card.nkey = Some(pair.public_key());
    card.seal_signature = Some(STANDARD.encode(pair.sign(&claim(card)).map_err(BusError::new)?));
    Ok(())
}

/// Why nothing may be sealed to this agent; `None`: its seal key is its own, as far as it says whose.
pub(crate) fn doubt(card: &AgentCard) -> Option<&'static str> {
    if XKey::from_public_key(&card.seal_key).is_err() {
        return Some("it names no key to which secrets could be sealed");
    }
    let is_signed = match (&card.nkey, &card.seal_signature) {
        (None, None) => return None,
        (Some(nkey), Some(signature)) => {
            KeyPair::from_public_key(nkey).ok().zip(STANDARD.decode(signature).ok())
        }
        _ => None,
    };
    let is_signed = is_signed.is_some_and(|(key, signature)| key.verify(&claim(card), &signature).is_ok());
    (!is_signed).then_some("the key to which secrets would be sealed is not signed by its NKEY")
}

/// Encrypts a plan for these agents: what goes into the document, and the encrypted plan.
pub(crate) fn seal(plan: &Plan, run: &str, agents: &[AgentCard]) -> Result<(SealedPlan, Vec<u8>), BusError> {
    let failed = |what: &str| BusError::new(format!("the plan could not be encrypted: {what}"));
    let mut secret = [0; 32];
    rand::fill(&mut secret).map_err(|_| failed("no random bytes"))?;
    let mut bytes = serde_json::to_vec(plan).map_err(BusError::new)?;
    let key = RandomizedNonceKey::new(&AES_256_GCM, &secret).map_err(|_| failed("no key"))?;
    let nonce = key
        .seal_in_place_append_tag(Aad::from(run.as_bytes()), &mut bytes)
        .map_err(|_| failed("it is too long"))?;
    let encrypted = [&nonce.as_ref()[..], &bytes].concat();
    let ours = XKey::new();
    let to = |card: &AgentCard| {
        let sealed = XKey::from_public_key(&card.seal_key).and_then(|agent| ours.seal(&secret, &agent));
        let sealed = sealed.map_err(|e| BusError::new(format!("agent {}: {e}", card.name)))?;
        Ok((card.incarnation.clone(), STANDARD.encode(sealed)))
    };
    let keys = agents.iter().map(to).collect::<Result<_, BusError>>()?;
    let digest = hex(&digest_of(&encrypted));
    Ok((SealedPlan { by: ours.public_key(), keys, digest }, encrypted))
}

/// The plan, if it is sealed to this agent.
pub(crate) fn open(
    sealed: &SealedPlan,
    run: &str,
    incarnation: &str,
    own: &SealKey,
    encrypted: &[u8],
) -> Result<Plan, String> {
    let cannot = |why: &str| format!("cannot decrypt the plan: {why}");
    if hex(&digest_of(encrypted)) != sealed.digest {
        return Err(cannot("it is not the one that the run names"));
    }
    let key = sealed.keys.get(incarnation).ok_or_else(|| cannot("it is not sealed to this agent"))?;
    let key = STANDARD.decode(key).map_err(|e| cannot(&e.to_string()))?;
    let by = XKey::from_public_key(&sealed.by).map_err(|e| cannot(&e.to_string()))?;
    let key = own.0.open(&key, &by).map_err(|e| cannot(&e.to_string()))?;
    let key =
        RandomizedNonceKey::new(&AES_256_GCM, &key).map_err(|_| cannot("its key has another length"))?;
    let (nonce, text) = encrypted.split_at_checked(NONCE_LEN).ok_or_else(|| cannot("it is too short"))?;
    let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| cannot("it has no nonce"))?;
    let mut text = text.to_vec();
    let plan = key
        .open_in_place(nonce, Aad::from(run.as_bytes()), &mut text)
        .map_err(|_| cannot("it was altered"))?;
    serde_json::from_slice(plan).map_err(|e| format!("cannot read the plan: {e}"))
}

/// The plan without what is secret: for coordinators, for reports, and for spools.
pub(crate) fn redacted(plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    for request in &mut plan.requests {
        let is_secret = |name: &str| {
            let name = name.to_ascii_lowercase();
            SECRET_FIELDS.iter().any(|word| name.contains(word))
        };
        request.fields.iter_mut().filter(|(name, _)| is_secret(name)).for_each(|(_, value)| {
            HIDDEN.clone_into(value);
        });
        request.body = None;
    }
    plan.data.clear();
    plan.target.url = without_user(&plan.target.url);
    // A script that signs requests may hold the key.
    if let Some(script) = plan.flows.as_mut().and_then(|flows| flows.script.as_mut()) {
        HIDDEN.clone_into(&mut script.text);
    }
    let hosts = plan.flows.iter_mut().flat_map(|flows| &mut flows.hosts);
    let all_tls = hosts.filter_map(|host| host.tls.as_mut()).chain(plan.tls.as_mut());
    for identity in all_tls.filter_map(|tls| tls.identity.as_mut()) {
        identity.key.text = HIDDEN.to_owned();
    }
    if let Some(proxy) = &mut plan.route.proxy {
        proxy.user = proxy.user.as_ref().map(|_| HIDDEN.to_owned());
    }
    plan
}

/// A URL without user and password.
fn without_user(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(at) => format!("{scheme}://{}", &rest[at + 1..]),
        None => url.to_owned(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use linerate_load::plan::Target;
    use linerate_load::plan::flow::{FlowPlan, PlanScript, UserPace};

    use super::*;

    fn card(name: &str, key: &SealKey) -> AgentCard {
        AgentCard {
            name: name.to_owned(),
            incarnation: format!("{name}-1"),
            seal_key: key.public(),
            ..AgentCard::default()
        }
    }

    fn plan() -> Plan {
        let mut plan = Plan::get(Target::at(([127, 0, 0, 1], 80).into()), "/");
        plan.requests[0].fields.push(("Authorization".to_owned(), "Bearer t0ken".to_owned()));
        plan.flows = Some(FlowPlan {
            users: 1,
            pace: UserPace::Always,
            own_connections: false,
            graceful: Duration::ZERO,
            iterations: None,
            keep_cookies: false,
            script: Some(PlanScript { file: "sign.js".to_owned(), text: "key = 't0ken'".to_owned() }),
            flows: Vec::new(),
            hosts: Vec::new(),
        });
        plan
    }

    #[test]
    fn a_plan_is_read_by_its_agents_alone() {
        let (ours, other) = (SealKey::new(), SealKey::new());
        let (sealed, mut encrypted) = seal(&plan(), "r", &[card("a", &ours)]).unwrap();
        assert!(!String::from_utf8_lossy(&encrypted).contains("t0ken"));
        assert_eq!(open(&sealed, "r", "a-1", &ours, &encrypted).unwrap(), plan());
        for (run, incarnation, key, why) in [
            ("r", "a-1", &other, "Cannot decrypt"),
            ("r", "b-1", &ours, "not sealed to this agent"),
            ("s", "a-1", &ours, "it was altered"),
        ] {
            let error = open(&sealed, run, incarnation, key, &encrypted).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        encrypted[20] ^= 1;
        let error = open(&sealed, "r", "a-1", &ours, &encrypted).unwrap_err();
        assert!(error.contains("it is not the one that the run names"), "{error}");
    }

    #[test]
    fn what_is_secret_is_not_in_the_document() {
        let text = serde_json::to_string(&redacted(&plan())).unwrap();
        assert!(!text.contains("t0ken") && text.contains(HIDDEN), "{text}");
    }

    #[test]
    fn a_url_loses_its_user_and_nothing_else() {
        for (url, without) in [
            ("http://me:pw@h:80/a@b", "http://h:80/a@b"),
            ("http://h/?q=a@b", "http://h/?q=a@b"),
            ("h:80/a", "h:80/a"),
        ] {
            assert_eq!(without_user(url), without);
        }
    }

    #[test]
    fn a_seal_key_is_vouched_for_by_the_agents_nkey() {
        let seed = KeyPair::new_user().seed().unwrap();
        let mut card = card("a", &SealKey::new());
        assert_eq!(doubt(&card), None);
        vouch(&mut card, &seed).unwrap();
        assert_eq!(doubt(&card), None);
        let other = AgentCard { seal_key: SealKey::new().public(), ..card.clone() };
        assert!(doubt(&other).is_some(), "another key was put in its place");
        assert!(doubt(&AgentCard { seal_signature: None, ..card.clone() }).is_some());
        assert!(doubt(&AgentCard { seal_key: String::new(), ..card }).is_some());
    }
}
