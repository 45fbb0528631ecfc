//! Backends and stores in the file: what is read, and which combinations are refused.

use super::*;
use storage_backends::{AzureCredentials, GcsCredentials, S3Checksum, S3Credentials};

/// A backend `cloud` of one type with these lines, and the file it would be in.
fn cloud(lines: &str, environment: Environment) -> Result<CloudStore, ConfigError> {
    let config = read_with(&format!("[backends.cloud]\n{lines}"), environment)?;
    Ok(store_of(&config, "cloud").clone())
}

fn s3(lines: &str, environment: Environment) -> Result<storage_backends::S3Config, ConfigError> {
    match cloud(&format!("type = \"s3\"\nbucket = \"b\"\n{lines}"), environment)? {
        CloudStore::S3(config) => Ok(config),
        other => panic!("{other:?} is no bucket of S3"),
    }
}

const PAIR: &str = "access_key_id = \"AK\"\nsecret_access_key = \"secret-secret\"\n";

#[test]
fn every_key_of_an_s3_store_arrives() {
    let lines = format!(
        "{PAIR}session_token = \"env:TOKEN\"\nprefix = \"p/\"\nregion = \"eu-central-1\"\nendpoint = \"http://127.0.0.1:7070\"\n\
         path_style = false\nchecksum = \"crc64nvme\"\nconnect_timeout = \"2s\"\nstall_timeout = \"30s\"\nattempts_max = 9\n\
         part_bytes = \"16MiB\"\nparts_in_flight = 4"
    );
    let environment = Environment::from([("TOKEN", "temporary")]);
    let text = format!("[backends.cloud]\ntype = \"s3\"\nbucket = \"b\"\n{lines}");
    let config = read_with(&text, environment).unwrap();
    let BackendConfig::Cloud(whole) = &config.stores.backends["cloud"] else { panic!("a cloud") };
    assert_eq!(whole.retry.attempts_max, 9);
    let CloudStore::S3(store) = &whole.store else { panic!("a bucket of S3") };
    assert_eq!((store.bucket.as_str(), store.prefix.as_str(), store.region.as_str()), ("b", "p/", "eu-central-1"));
    assert_eq!((store.endpoint.as_deref(), store.path_style), (Some("http://127.0.0.1:7070"), false));
    assert_eq!(store.checksum, S3Checksum::Crc64Nvme);
    assert_eq!((store.timeouts.connect, store.timeouts.silence), (Duration::from_secs(2), Duration::from_secs(30)));
    assert_eq!((store.upload.part_bytes, store.upload.parts_in_flight), (16 << 20, 4));
    let S3Credentials::Static { session_token, .. } = &store.credentials else { panic!("a key pair") };
    assert_eq!(session_token.as_ref().map(|token| token.expose_secret()), Some("temporary"));
    assert!(!config.shown.contains("secret-secret"), "{}", config.shown);
}

#[test]
fn an_s3_store_has_one_of_five_sources_of_credentials() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let none = Environment::default;
    let read = s3(&format!("credentials_file = {path:?}\nprofile = \"store\""), none()).unwrap();
    assert!(matches!(&read.credentials, S3Credentials::File { profile: Some(profile), .. } if profile == "store"));
    let web = format!(
        "role_arn = \"arn:aws:iam::1:role/r\"\nweb_identity_token_file = {path:?}\nsts_endpoint = \"http://127.0.0.1:1\""
    );
    let read = s3(&web, none()).unwrap();
    let S3Credentials::WebIdentity { sts_endpoint, session_name, .. } = read.credentials else { panic!("a role") };
    assert_eq!((sts_endpoint.as_deref(), session_name), (Some("http://127.0.0.1:1"), None));
    let read = s3("credentials = \"instance\"", none()).unwrap();
    assert!(matches!(read.credentials, S3Credentials::Instance { endpoint: None }));
    let variables = [("AWS_ACCESS_KEY_ID", "AK"), ("AWS_SECRET_ACCESS_KEY", "secret"), ("PATH", "/bin")];
    for lines in ["", "credentials = \"environment\""] {
        let read = s3(lines, Environment::from(variables)).unwrap();
        let S3Credentials::Environment(taken) = read.credentials else { panic!("the environment's") };
        assert_eq!(taken.keys().collect::<Vec<_>>(), ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]);
    }
    let read = s3(PAIR, Environment::from(variables)).unwrap();
    assert!(matches!(read.credentials, S3Credentials::Static { .. }), "what the file says wins");
}

#[test]
fn credentials_that_are_half_there_or_twice_are_refused_with_what_to_do() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let at = "backends.cloud";
    for (lines, key, says) in [
        (String::new(), at, "no credentials: set access_key_id"),
        ("credentials = \"environment\"".into(), at, "AWS_ACCESS_KEY_ID"),
        ("access_key_id = \"AK\"".into(), at, "access_key_id and secret_access_key belong together"),
        ("role_arn = \"r\"".into(), at, "role_arn and web_identity_token_file belong together"),
        (format!("{PAIR}credentials_file = {path:?}"), at, "access_key_id and credentials_file are different"),
        (format!("{PAIR}credentials = \"instance\""), at, "access_key_id and credentials are different"),
        (format!("{PAIR}profile = \"p\""), "backends.cloud.profile", "only with credentials_file"),
        ("session_token = \"t\"".into(), "backends.cloud.session_token", "only with access_key_id"),
        (format!("{PAIR}sts_endpoint = \"http://s\""), "backends.cloud.sts_endpoint", "only with role_arn"),
        (format!("{PAIR}metadata_endpoint = \"h\""), "backends.cloud.metadata_endpoint", "only with credentials"),
        ("credentials_file = \"/nonexistent/keys\"".into(), "backends.cloud.credentials_file", "cannot read"),
        (
            "access_key_id = \"env:NOWHERE\"\nsecret_access_key = \"s\"".into(),
            "backends.cloud.access_key_id",
            "NOWHERE",
        ),
    ] {
        let error = s3(&lines, Environment::default()).expect_err(&lines);
        assert_eq!(error.key(), Some(key), "{lines}: {error}");
        assert!(error.to_string().contains(says), "{lines}: {error}");
    }
}

#[test]
fn keys_that_no_store_could_work_with_are_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    for (lines, key) in [
        ("prefix = \"p\"".to_owned(), "prefix"),
        ("attempts_max = 0".into(), "attempts_max"),
        ("part_bytes = \"1MiB\"".into(), "part_bytes"),
        ("parts_in_flight = 0".into(), "parts_in_flight"),
        ("stall_timeout = \"1ms\"".into(), "stall_timeout"),
        ("endpoint = \"store.example.com\"".into(), "endpoint"),
        (format!("endpoint = \"http://127.0.0.1:1\"\nca_file = {path:?}"), "ca_file"),
        (format!("endpoint = \"https://127.0.0.1:1\"\nca_file = {path:?}"), "ca_file"),
        ("endpoint = \"https://127.0.0.1:1\"\nca_file = \"/nonexistent.pem\"".into(), "ca_file"),
        ("account = \"a\"".into(), "account"),
    ] {
        let error = s3(&format!("{PAIR}{lines}"), Environment::default()).expect_err(&lines);
        assert_eq!(error.key(), Some(format!("backends.cloud.{key}").as_str()), "{lines}: {error}");
    }
    let error = s3(&format!("{PAIR}endpoint = \"http://far.example.com\""), Environment::default()).unwrap_err();
    assert!(error.to_string().contains("allow_http = true accepts that"), "{error}");
    let error = s3(&format!("{PAIR}checksum = \"md5\""), Environment::default()).unwrap_err();
    assert!(error.to_string().contains("`md5`, expected one of `sha256`"), "{error}");
}

#[test]
fn a_bucket_of_google_has_one_source_of_credentials() {
    let gcs = |lines: &str, environment| cloud(&format!("type = \"gcs\"\nbucket = \"b\"\n{lines}"), environment);
    let CloudStore::Gcs(read) =
        gcs("anonymous = true\nendpoint = \"http://127.0.0.1:1\"\nprefix = \"p/\"", Environment::default()).unwrap()
    else {
        panic!("a bucket of Google")
    };
    assert!(matches!(read.credentials, GcsCredentials::Anonymous));
    assert_eq!((read.endpoint.as_deref(), read.prefix.as_str()), (Some("http://127.0.0.1:1"), "p/"));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(
        file.path(),
        r#"{"type": "authorized_user", "client_id": "i", "client_secret": "s", "refresh_token": "t"}"#,
    )
    .unwrap();
    let path = file.path().to_str().unwrap();
    let named = Environment::from([("GOOGLE_APPLICATION_CREDENTIALS", path)]);
    let CloudStore::Gcs(read) = gcs("", named).unwrap() else { panic!("a bucket of Google") };
    assert!(matches!(read.credentials, GcsCredentials::ApplicationDefault(Some(taken)) if taken == file.path()));
    for (lines, says) in [
        ("anonymous = true\nservice_account_key = \"{}\"", "service_account_key and anonymous are different"),
        ("service_account_key = \"{}\"", "the backend cannot be set up"),
        ("service_account_file = \"/nonexistent/key.json\"", "cannot read /nonexistent/key.json"),
        ("access_key_id = \"AK\"", "unknown key"),
    ] {
        let error = gcs(lines, Environment::default()).expect_err(lines).to_string();
        assert!(error.contains(says), "{lines}: {error}");
    }
}

#[test]
fn a_container_of_azure_has_one_source_of_credentials() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let azure = |lines: &str| -> Result<storage_backends::AzureConfig, ConfigError> {
        let store = cloud(
            &format!("type = \"azure\"\naccount = \"a\"\ncontainer = \"c\"\n{lines}"),
            Environment::from([("SAS", "sv=1&sig=x")]),
        )?;
        match store {
            CloudStore::Azure(config) => Ok(config),
            other => panic!("{other:?} is no container of Azure"),
        }
    };
    let read = azure("access_key = \"c2VjcmV0\"").unwrap();
    assert!(matches!(read.credentials, AzureCredentials::AccessKey(_)));
    let read = azure("sas_token = \"env:SAS\"").unwrap();
    assert!(matches!(read.credentials, AzureCredentials::SharedAccessSignature(_)));
    let application = "tenant_id = \"t\"\nclient_id = \"i\"\n";
    let read =
        azure(&format!("{application}client_secret = \"s\"\nauthority = \"https://login.example.com\"")).unwrap();
    assert!(matches!(read.credentials, AzureCredentials::ClientSecret { .. }));
    assert_eq!(read.authority.as_deref(), Some("https://login.example.com"));
    let read = azure(&format!("{application}federated_token_file = {path:?}")).unwrap();
    assert!(matches!(read.credentials, AzureCredentials::WorkloadIdentity { .. }));
    let read = azure("client_id = \"i\"").unwrap();
    assert!(matches!(read.credentials, AzureCredentials::ManagedIdentity(Some(_))));
    let read = azure("").unwrap();
    assert!(matches!(read.credentials, AzureCredentials::ManagedIdentity(None)));
    for (lines, says) in [
        ("access_key = \"c2VjcmV0\"\nsas_token = \"s\"", "access_key and sas_token are different"),
        ("access_key = \"c2VjcmV0\"\nclient_id = \"i\"", "no meaning beside access_key"),
        ("client_secret = \"s\"\nclient_id = \"i\"", "needs tenant_id and client_id"),
        ("tenant_id = \"t\"", "only with client_secret or federated_token_file"),
        ("authority = \"https://login.example.com\"", "only with client_secret or federated_token_file"),
        ("access_key = \"§\"", "the backend cannot be set up"),
    ] {
        let error = azure(lines).expect_err(lines).to_string();
        assert!(error.contains(says), "{lines}: {error}");
    }
}

#[test]
fn a_store_of_plain_objects_has_the_keys_of_a_backend_and_a_name_of_its_own() {
    let stores = "[stores.old]\ntype = \"gcs\"\nbucket = \"b\"\nanonymous = true\n";
    let config = read(stores).unwrap();
    assert!(
        matches!(&config.stores.stores["old"], BackendConfig::Cloud(cloud) if matches!(cloud.store, CloudStore::Gcs(_)))
    );
    let error = refused(&format!("{stores}[backends.old]\ntype = \"local\"\npath = \"/p\""));
    assert_eq!(error, "stores.old: a backend has this name");
}
