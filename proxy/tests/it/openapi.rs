//! The documented calls of the admin API are those that there are, in both directions.

use crate::{running::Running, wire::Wire};
use deltaweir::admin::{ROOT, ROUTES};
use serde_json::Value;
use std::collections::BTreeSet;

const DOCUMENT: &str = include_str!("../../../docs/reference/openapi.json");
const PAGE: &str = include_str!("../../../docs/reference/admin-api.md");
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

fn documented() -> BTreeSet<(String, String)> {
    let document: Value = serde_json::from_str(DOCUMENT).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let methods = |(path, item): (&String, &Value)| {
        let path = path.clone();
        let methods: Vec<_> = item.as_object().unwrap().keys().filter(|name| *name != "parameters").cloned().collect();
        methods.into_iter().map(move |method| (method.to_uppercase(), path.clone()))
    };
    paths.iter().flat_map(methods).collect()
}

#[test]
fn every_call_is_documented_and_every_documented_call_is_there() {
    let served: BTreeSet<_> =
        ROUTES.iter().map(|(method, path, _)| (method.to_string(), format!("{ROOT}{path}"))).collect();
    assert!(served.len() >= 24);
    assert_eq!(documented(), served);
    for (method, path) in &served {
        let named = path.replace("{name}", "NAME");
        assert!(PAGE.contains(&format!("`{method} {named}")), "{method} {named} is not in admin-api.md");
    }
}

#[tokio::test]
async fn the_server_knows_each_documented_call() {
    let running = Running::start(&format!("[server]\nadmin_token = \"{TOKEN}\"")).await;
    // What the calls with a name ask for.
    let policy = r#"{"Statement":{"Effect":"Allow","Action":"s3:GetObject","Resource":"*"}}"#;
    for (target, body) in [("/api/v1/users/gc", "{}"), ("/api/v1/policies/gc", policy)] {
        let mut wire = Wire::to(running.admin).await;
        let length = body.len();
        let headers =
            format!("Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n");
        wire.send(wire.unsigned("PUT", target, &headers) + body).await;
        assert_eq!(wire.reply(false).await.unwrap().status, 200, "{target}");
    }
    for (method, path) in documented() {
        let target = path.replace("{name}", "gc");
        let mut wire = Wire::to(running.admin).await;
        // A body of another type is refused by each call that takes one, before anything is done.
        let head =
            wire.unsigned(&method, &target, &format!("Authorization: Bearer {TOKEN}\r\nContent-Type: text/plain\r\n"));
        wire.send(head).await;
        let status = wire.reply(false).await.unwrap().status;
        let expected: &[u16] = if method == "GET" { &[200, 400] } else { &[415] };
        assert!(expected.contains(&status), "{method} {target}: {status}");
    }
}
