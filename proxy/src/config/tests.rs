mod backends;

use super::*;
use crate::stores::{BackendConfig, CloudStore};
use engine::{AnchorPlace, Compression, EffortSetting, Encryption};
use proptest::prelude::*;
use storage_backends::S3Credentials;

fn read(text: &str) -> Result<ServeConfig, ConfigError> {
    read_with(text, Environment::default())
}

fn read_with(text: &str, environment: Environment) -> Result<ServeConfig, ConfigError> {
    ServeConfig::from_text(text, Path::new(""), &Overrides::default(), &environment)
}

fn store_of<'a>(config: &'a ServeConfig, name: &str) -> &'a CloudStore {
    match &config.stores.backends[name] {
        BackendConfig::Cloud(cloud) => &cloud.store,
        BackendConfig::Local { .. } => panic!("{name} is a bucket"),
    }
}

fn refused(text: &str) -> String {
    read(text).err().expect("this is refused").to_string()
}

const CONTRACT: &str = r#"
[server]
listen = "127.0.0.1:9000"
admin_listen = "127.0.0.1:9001"
region = "us-east-1"
domains = ["s3.example.com"]
storage_headers = true
[storage]
data = "./deltaweir-data"
catalog = "sqlite"
backend = "local"
sync = true
[backends.local]
type = "local"
path = "./deltaweir-data/blobs"
[backends.cloud]
type = "s3"
endpoint = "http://127.0.0.1:7070"
bucket = "deltaweir-store"
prefix = "prod/"
region = "us-east-1"
access_key_id = "env:CLOUD_KEY"
secret_access_key = "env:CLOUD_SECRET"
[defaults]
compression = "delta"
encryption = "off"
effort = "auto"
[buckets."bench-encryption"]
compression = "off"
encryption = "aes256"
[[users]]
name = "ci"
access_key_id = "AKCI"
secret_access_key = "env:CI_SECRET"
policy = "readwrite"
[limits]
memory_bytes_max = "1GiB"
spool_bytes_max = "16GiB"
"#;

#[test]
fn the_file_of_the_contract_is_read() {
    let environment =
        Environment::from([("CLOUD_KEY", "ck"), ("CLOUD_SECRET", "cs-cs-cs"), ("CI_SECRET", "ci-secret-1")]);
    let config = read_with(CONTRACT, environment).unwrap();
    assert_eq!(config.server.domains.bucket_of("b.s3.example.com").as_deref(), Some("b"));
    assert_eq!(config.engine.memory_bytes_max, 1 << 30);
    let bench = &config.engine.buckets["bench-encryption"];
    assert_eq!(
        (bench.compression, bench.encryption, bench.effort),
        (Compression::Off, Encryption::Aes256, EffortSetting::Auto)
    );
    assert_eq!(bench.backend, "local");
    let CloudStore::S3(cloud) = store_of(&config, "cloud") else { panic!("cloud is an S3 backend") };
    assert!(!cloud.allow_http, "plain HTTP to another machine is asked for by name");
    let S3Credentials::Static { access_key_id, .. } = &cloud.credentials else { panic!("the file has a key pair") };
    assert_eq!(access_key_id, "ck");
    assert_eq!(config.users[0].name, "ci");
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
}

#[test]
fn nothing_at_all_is_a_configuration() {
    let config = read("").unwrap();
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:9000");
    let BackendConfig::Local { path } = &config.stores.backends["local"] else {
        panic!("the default backend is local")
    };
    assert_eq!(path, Path::new("./deltaweir-data/blobs"));
    assert_eq!(config.engine.defaults.compression, Compression::Delta);
}

#[test]
fn an_unknown_key_is_refused_with_its_path() {
    for (text, path) in [
        ("sever = 1", "sever"),
        ("[server]\nlisten_on = 1", "server.listen_on"),
        ("[limits]\nmemory = 1", "limits.memory"),
        ("[buckets.photos]\ncompresion = \"off\"", "buckets.photos.compresion"),
        ("[backends.cloud]\ntype = \"s3\"\nbucket = \"b\"\nbuckett = \"b\"", "backends.cloud.buckett"),
    ] {
        let error = read(text).err().expect("this is refused");
        assert_eq!(error.key(), Some(path), "{error}");
        assert!(error.to_string().contains("unknown key"), "{error}");
    }
}

#[test]
fn a_wrong_value_is_refused_with_its_path() {
    for (text, start) in [
        ("[server]\nlisten = 9000", "server.listen: "),
        ("[server]\nlisten = \"localhost\"", "server.listen: "),
        ("[server]\nhead_timeout = \"soon\"", "server.head_timeout: expected a duration"),
        ("[limits]\nmemory_bytes_max = \"much\"", "limits.memory_bytes_max: expected a size"),
        ("[limits]\nmemory_bytes_max = \"1KiB\"", "limits.memory_bytes_max: expected at least"),
        ("[defaults]\ncompression = \"gzip\"", "defaults.compression: unknown variant `gzip`"),
        ("[storage]\nbackend = \"cloud\"", "storage.backend: there is no [backends.cloud]"),
        ("[storage]\ncatalog = \"mysql://\"", "storage.catalog: "),
        ("[storage]\nkek = \"c2hvcnQ=\"", "storage.kek: expected the base64 of 32 bytes"),
        (
            "[storage]\nkek = \"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\"",
            "storage.kek: this key is one byte again and again: make one with `openssl rand -base64 32`",
        ),
        ("[kms.keys]\npayroll = \"keyrng\"", "kms.keys.payroll: expected the base64 of 32 bytes"),
        ("[kms.keys]\npayroll = []", "kms.keys.payroll: expected \"keyring\" or a secret"),
        ("[kms.keys]\n\"\" = \"keyring\"", "kms.keys: a key needs a name"),
        ("[buckets.X]", "buckets.X: not a valid bucket name"),
        ("[server]\ntls_cert = \"cert.pem\"", "server.tls_key: "),
        ("[server]\nadmin_listen = \"127.0.0.1:9000\"", "server.admin_listen: "),
    ] {
        let error = refused(text);
        assert!(error.starts_with(start), "{text:?} gives {error:?}");
    }
}

#[test]
fn a_syntax_error_is_refused_with_its_line() {
    assert!(refused("[server]\nlisten = ").contains("line 2"));
}

#[test]
fn a_flag_wins_over_the_environment_and_that_over_the_file() {
    let environment = Environment::from([("DELTAWEIR_LISTEN", "127.0.0.1:2"), ("DELTAWEIR_DATA", "/env")]);
    let flags = Overrides { listen: Some("127.0.0.1:3".into()), ..Overrides::default() };
    let text = "[server]\nlisten = \"127.0.0.1:1\"\n[storage]\ndata = \"/file\"";
    let config = ServeConfig::from_text(text, Path::new(""), &flags, &environment).unwrap();
    assert_eq!(config.server.listen.port(), 3);
    assert_eq!(config.engine.data, Path::new("/env"));
    let BackendConfig::Local { path } = &config.stores.backends["local"] else {
        panic!("the default backend is local")
    };
    assert_eq!(path, Path::new("/env/blobs"));
}

#[test]
fn a_listener_others_can_reach_needs_credentials_and_an_admin_listener_a_token() {
    let error = refused("[server]\nlisten = \"0.0.0.0:9000\"");
    assert!(error.starts_with("server.listen: "), "{error}");
    let error = refused("[server]\nadmin_listen = \"[::]:9001\"");
    assert!(error.starts_with("server.admin_listen: "), "{error}");
    let environment = Environment::from([
        ("DELTAWEIR_ACCESS_KEY_ID", "AKROOT"),
        ("DELTAWEIR_SECRET_ACCESS_KEY", "a-long-secret"),
        ("DELTAWEIR_ADMIN_TOKEN", "a-token-of-32-visible-characters"),
        ("DELTAWEIR_LISTEN", "0.0.0.0:9000"),
        ("DELTAWEIR_ADMIN_LISTEN", "0.0.0.0:9001"),
    ]);
    let error = read_with("", environment.clone()).err().expect("the token would be sent in the clear").to_string();
    assert!(error.contains("tls_cert"), "{error}");
    let tls = read_with("[server]\ntls_cert = \"c\"\ntls_key = \"k\"", environment.clone()).unwrap();
    assert!(tls.server.admin_tls);
    let config = read_with("[server]\nadmin_over_http = true", environment).unwrap();
    assert!(!config.server.admin_tls);
    assert_eq!(config.root.unwrap().access_key_id, "AKROOT");
}

#[test]
fn a_short_admin_token_is_refused() {
    for key in ["admin_token", "admin_read_token"] {
        let error = refused(&format!("[server]\n{key} = \"0123456789abcdef0123456789abcde\""));
        assert!(error.starts_with(&format!("server.{key}: ")), "{error}");
    }
}

#[test]
fn half_a_key_pair_and_empty_secrets_are_refused() {
    // C22
    for (environment, start) in [
        (Environment::from([("DELTAWEIR_ACCESS_KEY_ID", "AKROOT")]), "DELTAWEIR_SECRET_ACCESS_KEY: "),
        (Environment::from([("DELTAWEIR_SECRET_ACCESS_KEY", "secret-secret")]), "DELTAWEIR_ACCESS_KEY_ID: "),
        (
            Environment::from([("DELTAWEIR_ACCESS_KEY_ID", "AKROOT"), ("DELTAWEIR_SECRET_ACCESS_KEY", "")]),
            "DELTAWEIR_SECRET_ACCESS_KEY: ",
        ),
    ] {
        let error = read_with("", environment).err().expect("this is refused").to_string();
        assert!(error.starts_with(start), "{error}");
    }
}

fn user(name: &str, key: &str, secret: &str, policy: &str) -> String {
    format!(
        "[[users]]\nname = {name:?}\naccess_key_id = {key:?}\nsecret_access_key = {secret:?}\npolicy = {policy:?}\n"
    )
}

#[test]
fn users_have_names_keys_secrets_and_policies_of_their_own() {
    let good = user("ci", "AKCI", "secret-one", "readonly");
    assert_eq!(read(&good).unwrap().users.len(), 1);
    for (more, start) in [
        (user("ci", "AKXX", "secret-two", "readonly"), "users[1].name: "),
        (user("root", "AKXX", "secret-two", "readonly"), "users[1].name: "),
        (user("b", "AKCI", "secret-two", "readonly"), "users[1].access_key_id: "),
        (user("b", "A/KEY", "secret-two", "readonly"), "users[1].access_key_id: "),
        (user("b", "AKB", "short", "readonly"), "users[1].secret_access_key: "),
        (user("b", "AKB", "env:NOWHERE", "readonly"), "users[1].secret_access_key: the environment has no NOWHERE"),
        (user("b", "AKB", "file:/nowhere/at/all", "readonly"), "users[1].secret_access_key: cannot read"),
        (user("b", "AKB", "secret-two", "owner"), "users[1].policy: "),
        (user("b", "AKB", "secret-two", "file:/nowhere.json"), "users[1].policy: cannot read"),
    ] {
        let error = refused(&(good.clone() + &more));
        assert!(error.starts_with(start), "{error}");
    }
}

#[test]
fn secrets_and_policies_are_read_from_files_beside_the_configuration() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("secret"), "from-a-file\n").unwrap();
    let policy = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:GetObject","Resource":"arn:aws:s3:::b/*"}]}"#;
    std::fs::write(directory.path().join("policy.json"), policy).unwrap();
    std::fs::write(directory.path().join("bad.json"), policy.replace("Effect", "Efect")).unwrap();
    let path = directory.path().join("deltaweir.toml");
    let load = |policy: &str| {
        std::fs::write(&path, user("ci", "AKCI", "file:secret", policy)).unwrap();
        let overrides = Overrides { config: Some(path.clone()), ..Overrides::default() };
        ServeConfig::load(&overrides, &Environment::default())
    };
    let config = load("file:policy.json").unwrap();
    assert!(matches!(config.users[0].policy, Policy::Document(_)));
    let error = load("file:bad.json").err().expect("an unknown field is refused").to_string();
    let place = format!("{}:5: users[0].policy: ", path.display());
    assert!(error.starts_with(&place) && error.contains("Efect"), "{error}");
    std::fs::write(directory.path().join("bad.json"), "{\n  \"Version\": nothing\n}").unwrap();
    let error = load("file:bad.json").err().expect("no JSON").to_string();
    assert!(error.contains("bad.json:2: "), "{error}");
    assert!(load("file:policy.json").is_ok());
    let elsewhere = Environment::from([("DELTAWEIR_LISTEN", "nowhere")]);
    let overrides = Overrides { config: Some(path), ..Overrides::default() };
    let error = ServeConfig::load(&overrides, &elsewhere).err().expect("no address").to_string();
    assert!(error.starts_with("server.listen: "), "a variable stands in no line: {error}");
}

#[test]
fn an_anchor_with_a_relative_path_lies_beneath_the_configurations_directory() {
    let read = |anchor: &str, directory: &str| {
        let text = format!("[backup]\nanchor = {anchor:?}\n");
        ServeConfig::from_text(&text, Path::new(directory), &Overrides::default(), &Environment::default())
    };
    let anchor = |name: &str, directory: &str| read(name, directory).unwrap().engine.safety.anchor.unwrap();
    for (name, directory, path) in [
        ("anchor", "/etc/deltaweir", "/etc/deltaweir/anchor"),
        ("anchor", "", "anchor"),
        ("/mnt/anchor", "/etc/deltaweir", "/mnt/anchor"),
        ("./store:elsewhere", "", "./store:elsewhere"),
    ] {
        assert_eq!(anchor(name, directory), AnchorPlace::File(path.into()));
    }
}

#[test]
fn an_anchor_may_be_a_store_that_lies_where_no_backend_does() {
    let read = |anchor: &str, path: &str| {
        let text = format!(
            "[backup]\nanchor = {anchor:?}\n[stores.elsewhere]\ntype = \"local\"\npath = {path:?}\n\
             [backends.local]\ntype = \"local\"\npath = \"/srv/blobs\"\n"
        );
        ServeConfig::from_text(&text, Path::new(""), &Overrides::default(), &Environment::default())
    };
    let found = |anchor: &str| {
        let config = read(anchor, "/mnt/elsewhere").unwrap();
        assert_eq!(config.stores.anchor.as_deref(), Some("elsewhere"));
        config.engine.safety.anchor.unwrap()
    };
    let place = |prefix: &str| AnchorPlace::Store { name: "elsewhere".into(), prefix: prefix.into() };
    assert_eq!(found("store:elsewhere"), place("deltaweir-anchor"));
    assert_eq!(found("store:elsewhere/of/photos"), place("of/photos"));
    for (anchor, path) in [
        ("store:nowhere", "/mnt/elsewhere"),
        ("store:", "/mnt/elsewhere"),
        ("store:elsewhere/", "/mnt/elsewhere"),
        ("store:elsewhere/UP", "/mnt/elsewhere"),
        ("store:elsewhere/../x", "/mnt/elsewhere"),
        ("store:elsewhere", "/srv/blobs/anchor"),
        ("store:elsewhere", "/srv"),
    ] {
        let error = read(anchor, path).err().expect("refused").to_string();
        assert!(error.contains("backup.anchor: "), "{anchor} {path}: {error}");
    }
}

#[test]
fn names_that_no_file_and_no_host_can_have_are_refused() {
    for (table, key, values) in [
        ("storage", "data", &[r#""""#][..]),
        ("storage", "keyring", &[r#""""#]),
        ("backup", "anchor", &[r#""""#]),
        ("audit", "path", &[r#""""#]),
        ("access_log", "path", &[r#""""#]),
        ("eject", "roots", &[r#"[""]"#, r#"["/srv", ""]"#]),
        ("backends.local", "path", &["\"\"\ntype = \"local\""]),
        ("server", "domains", &[r#"[""]"#, r#"["*.s3"]"#, r#"["s3:9000"]"#, r#"["https://s3"]"#, r#"["."]"#]),
        ("server", "admin_hosts", &[r#"[""]"#, r#"["a b"]"#, r#"["s3:9001"]"#, r#"["::1"]"#, r#"["[s3]"]"#]),
    ] {
        for value in values {
            let error = refused(&format!("[{table}]\n{key} = {value}"));
            assert!(error.starts_with(&format!("{table}.{key}: ")), "{value}: {error}");
        }
    }
    let named = "[server]\ndomains = [\".s3.example.com.\"]\nadmin_hosts = [\"weir_1\", \"10.0.0.1\", \"[::1]\"]";
    assert_eq!(read(named).unwrap().server.admin_hosts.len(), 3);
}

#[test]
fn what_is_shown_holds_no_secret() {
    // C115
    let environment = Environment::from([
        ("DELTAWEIR_ADMIN_TOKEN", "canary-token-canary-token-canary-token"),
        ("DELTAWEIR_KEK", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="),
    ]);
    let catalog = "[storage]\ncatalog = \"postgres://weir:canary-word@db/weir\"\n";
    let text = catalog.to_owned() + &user("ci", "AKCI", "canary-secret", "readonly");
    let shown = read_with(&text, environment).unwrap().shown;
    assert!(shown.contains("[redacted]"));
    assert!(!shown.contains("canary") && !shown.contains("AAECAwQ"), "{shown}");
}

#[test]
fn a_catalog_is_an_address_that_could_be_connected_to() {
    let refused = |url: &str| {
        let refused = read(&format!("[storage]\ncatalog = \"{url}\"\n")).err().expect("this is refused").to_string();
        assert!(refused.contains("storage.catalog"), "{refused}");
        refused
    };
    for nowhere in [
        "postgres://",
        "postgresql://",
        "postgres:///weir",
        "postgres://weir@/weir",
        "postgres://?dbname=weir",
        "postgres://:5432/weir",
        "postgres://weir@:5432/weir",
        "postgres://,/weir",
        "postgres://a,/weir",
        "postgres:///weir?host=",
    ] {
        assert!(refused(nowhere).contains("names no host"), "{nowhere}");
    }
    refused("postgres://db:port/weir");
    assert!(refused("postgres://db/weir?sslmode=require").contains("verify-full"));
    assert!(refused("mysql://db/weir").contains("postgres://"));
    for address in [
        "postgres://db",
        "postgres:///weir?host=/run/postgresql",
        "postgresql://a,b:6432/weir",
        "postgres://:5432/weir?hostaddr=127.0.0.1",
    ] {
        assert!(read(&format!("[storage]\ncatalog = \"{address}\"\n")).is_ok(), "{address}");
    }
}

#[test]
fn a_variable_without_meaning_is_pointed_out() {
    let warnings = read_with("", Environment::from([("DELTAWEIR_LISTN", "x")])).unwrap().warnings;
    assert_eq!(warnings, ["DELTAWEIR_LISTN is set but has no meaning"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_text_is_a_configuration_or_refused_in_words(
        text in any::<String>(), line in any::<prop::sample::Index>(), written in "[-a-z0-9_\\[\\].=\"{} ]{0,20}",
    ) {
        let mut lines: Vec<&str> = CONTRACT.lines().collect();
        let at = line.index(lines.len());
        lines[at] = &written;
        for text in [text, lines.join("\n")] {
            if let Err(error) = read_with(&text, Environment::from([("CLOUD_KEY", "AK"), ("CLOUD_SECRET", "secret-of-the-cloud"), ("CI_SECRET", "secret-of-ci")])) {
                let said = error.to_string();
                prop_assert!(!said.is_empty() && !said.contains("secret-of"), "{}", said);
            }
        }
    }
}

#[test]
fn localhost_is_an_address() {
    let config = "[server]\nlisten = \"localhost:9100\"\nadmin_listen = \"localhost:9101\"";
    let config = ServeConfig::from_text(config, Path::new(""), &Overrides::default(), &Environment::default()).unwrap();
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:9100");
    assert_eq!(config.server.admin_listen.to_string(), "127.0.0.1:9101");
}
