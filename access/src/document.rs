//! Policy documents: what they may say, and what they say about one request.

use crate::{
    actions::{self, Scope},
    condition::Condition,
    context::{Context, Key, NoContext},
    error::PolicyError,
    pattern::Pattern,
    principal::{Caller, Match, Principals},
};
use serde_json::{Map, Value};

/// Most bytes of a bucket policy.
const BUCKET_POLICY_BYTES_MAX: usize = 20 << 10;
/// How every resource of S3 begins.
const ARN_PREFIX: &str = "arn:aws:s3:::";

/// A policy, parsed and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    statements: Vec<Statement>,
}

/// One statement of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    sid: Option<String>,
    pub(crate) allow: bool,
    pub(crate) principals: Option<Principals>,
    actions: Patterns,
    resources: Patterns,
    pub(crate) conditions: Vec<Condition>,
}

/// `Action` or `NotAction`, `Resource` or `NotResource`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Patterns {
    patterns: Vec<Pattern>,
    all_but: bool,
}

impl Patterns {
    fn cover(&self, text: &str, context: &dyn Context, fold: bool) -> bool {
        self.patterns.iter().any(|pattern| pattern.matches(text, context, fold)) != self.all_but
    }

    /// Whether they cover every text that begins with `below`; false where that cannot be told.
    fn cover_all_below(&self, below: &str, context: &dyn Context) -> bool {
        !self.all_but && self.patterns.iter().any(|pattern| pattern.fits_all_below(below, context))
    }

    /// False when they cover no text that begins with `below`; true where that cannot be told.
    fn may_cover_below(&self, below: &str, context: &dyn Context) -> bool {
        match self.all_but {
            true => !self.patterns.iter().any(|pattern| pattern.fits_all_below(below, context)),
            false => self.patterns.iter().any(|pattern| pattern.may_fit_below(below)),
        }
    }
}

/// What a policy says about everything whose ARN begins alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FindingBelow {
    /// It may deny some of it.
    pub(crate) may_deny: bool,
    /// How it allows all of it.
    pub(crate) allows: Match,
}

/// What a policy says about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding<'d> {
    /// Nothing: no statement is about it.
    Nothing,
    /// A statement denies it.
    Deny(usize, &'d Statement),
    /// A statement allows it. `directly` is false when it names only the caller's account, which
    /// passes on to its users what they may do.
    Allow {
        /// Which statement, counted from 0.
        index: usize,
        /// The statement.
        statement: &'d Statement,
        /// See above.
        directly: bool,
    },
}

impl Default for FindingBelow {
    fn default() -> Self {
        Self { may_deny: false, allows: Match::No }
    }
}

impl Statement {
    /// Its `Sid`.
    pub fn sid(&self) -> Option<&str> {
        self.sid.as_deref()
    }

    fn matches(&self, caller: Option<&Caller>, action: &str, resource: &str, context: &dyn Context) -> Match {
        let named = self.principals.as_ref().map_or(Match::Caller, |principals| principals.matches(caller));
        let about = named != Match::No
            && self.actions.cover(action, context, true)
            && self.resources.cover(resource, context, false)
            && self.conditions.iter().all(|condition| condition.holds(context));
        if about { named } else { Match::No }
    }

    /// Whether it depends on what the addressed object has, such as its tags.
    fn asks_for_the_object(&self) -> bool {
        self.conditions.iter().flat_map(Condition::keys).any(Key::is_of_object)
            || self.resources.patterns.iter().flat_map(Pattern::keys).any(Key::is_of_object)
    }

    /// Whether it may deny something whose ARN begins with `below`, or how it allows all of that.
    fn matches_below(&self, caller: Option<&Caller>, action: &str, below: &str, context: &dyn Context) -> Match {
        let named = self.principals.as_ref().map_or(Match::Caller, |principals| principals.matches(caller));
        if named == Match::No || !self.actions.cover(action, context, true) {
            return Match::No;
        }
        let holds = || self.conditions.iter().all(|condition| condition.holds(context));
        let about = match (self.allow, self.asks_for_the_object()) {
            (true, true) => false,
            (true, false) => self.resources.cover_all_below(below, context) && holds(),
            (false, true) => self.resources.may_cover_below(below, context),
            (false, false) => self.resources.may_cover_below(below, context) && holds(),
        };
        if about { named } else { Match::No }
    }
}

impl Document {
    /// Reads the policy of a user or session: statements without principals.
    ///
    /// # Errors
    /// What is wrong with it. What is not understood is refused, never passed over.
    pub fn identity(json: &[u8]) -> Result<Self, PolicyError> {
        Self::parse(json, None)
    }

    /// Reads the policy of a bucket: every statement names principals and resources of the bucket.
    ///
    /// # Errors
    /// As [`Document::identity`], in S3's words.
    pub fn of_bucket(json: &[u8], bucket: &str) -> Result<Self, PolicyError> {
        if json.len() > BUCKET_POLICY_BYTES_MAX {
            return Err(PolicyError::new("Policy exceeds the maximum allowed document size of 20 KB"));
        }
        Self::parse(json, Some(bucket))
    }

    fn parse(json: &[u8], bucket: Option<&str>) -> Result<Self, PolicyError> {
        let not_json = || PolicyError::new("Policies must be valid JSON and the first byte must be '{'");
        if json.first() != Some(&b'{') && bucket.is_some() {
            return Err(not_json());
        }
        let document: Value =
            serde_json::from_slice(json).map_err(|_| PolicyError::new("This policy contains invalid Json"))?;
        let document = document.as_object().ok_or_else(not_json)?;
        known_fields(document, &["Version", "Id", "Statement"])?;
        let variables = match document.get("Version").map(Value::as_str) {
            None => false,
            Some(Some("2012-10-17")) => true,
            Some(Some("2008-10-17")) => false,
            Some(_) => return Err(PolicyError::new("The policy must contain a valid version string")),
        };
        if document.get("Id").is_some_and(|id| !id.is_string()) {
            return Err(PolicyError::new("Invalid policy syntax."));
        }
        let statements = match document.get("Statement") {
            None => return Err(PolicyError::missing("Statement")),
            Some(Value::Array(statements)) => statements.as_slice(),
            Some(one) => std::slice::from_ref(one),
        };
        if statements.is_empty() {
            return Err(PolicyError::new("Could not parse the policy: Statement is empty!"));
        }
        let statements: Vec<_> =
            statements.iter().map(|value| Statement::parse(value, variables, bucket)).collect::<Result<_, _>>()?;
        let mut sids: Vec<_> = statements.iter().filter_map(Statement::sid).collect();
        sids.sort_unstable();
        if let Some(pair) = sids.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(PolicyError::with_detail("Statement IDs (SID) in a single policy must be unique.", pair[0]));
        }
        Ok(Self { statements })
    }

    /// One document that says what several say together; `None` for none.
    pub fn joined<'d>(documents: impl IntoIterator<Item = &'d Self>) -> Option<Self> {
        let statements: Vec<_> =
            documents.into_iter().flat_map(|document| document.statements.iter().cloned()).collect();
        (!statements.is_empty()).then_some(Self { statements })
    }

    /// What it says: a Deny wins over every Allow.
    pub fn evaluate(
        &self,
        caller: Option<&Caller>,
        action: &str,
        resource: &str,
        context: &dyn Context,
    ) -> Finding<'_> {
        let mut found = Finding::Nothing;
        for (index, statement) in self.statements.iter().enumerate() {
            match (statement.matches(caller, action, resource, context), statement.allow) {
                (Match::No, _) => {}
                (_, false) => return Finding::Deny(index, statement),
                (named, true) => {
                    let directly = named == Match::Caller;
                    if !matches!(found, Finding::Allow { directly: true, .. })
                        && (directly || found == Finding::Nothing)
                    {
                        found = Finding::Allow { index, statement, directly };
                    }
                }
            }
        }
        found
    }

    /// What it says about everything whose ARN begins with `below`, in one question.
    pub(crate) fn evaluate_below(
        &self,
        caller: Option<&Caller>,
        action: &str,
        below: &str,
        context: &dyn Context,
    ) -> FindingBelow {
        let mut found = FindingBelow::default();
        for statement in &self.statements {
            match (statement.matches_below(caller, action, below, context), statement.allow) {
                (Match::No, _) => {}
                (_, false) => found.may_deny = true,
                (named, true) => found.allows = found.allows.max(named),
            }
        }
        found
    }

    /// Its statements in order.
    pub fn statements(&self) -> &[Statement] {
        &self.statements
    }

    /// Whether a statement allows all but those it names. S3 takes no such policy any more; ones
    /// that were set earlier still count.
    pub fn allows_all_but_some(&self) -> bool {
        self.statements.iter().any(|statement| {
            statement.allow && statement.principals.as_ref().is_some_and(Principals::names_who_is_left_out)
        })
    }

    /// Whether a decision may depend on what the addressed object has, such as its tags.
    pub fn asks_for_the_object(&self) -> bool {
        self.statements.iter().any(Statement::asks_for_the_object)
    }
}

fn known_fields(object: &Map<String, Value>, known: &[&str]) -> Result<(), PolicyError> {
    match object.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => Err(PolicyError::new(format!("Unknown field {name}"))),
    }
}

impl Statement {
    fn parse(value: &Value, variables: bool, bucket: Option<&str>) -> Result<Self, PolicyError> {
        let object = value.as_object().ok_or_else(|| PolicyError::new("Invalid policy syntax."))?;
        known_fields(
            object,
            &[
                "Sid",
                "Effect",
                "Principal",
                "NotPrincipal",
                "Action",
                "NotAction",
                "Resource",
                "NotResource",
                "Condition",
            ],
        )?;
        let sid = match object.get("Sid") {
            None => None,
            Some(Value::String(sid)) => Some(sid.clone()).filter(|sid| !sid.is_empty()),
            Some(_) => return Err(PolicyError::new("Invalid policy syntax.")),
        };
        let allow = match object.get("Effect").map(Value::as_str) {
            None => return Err(PolicyError::missing("Effect")),
            Some(Some("Allow")) => true,
            Some(Some("Deny")) => false,
            Some(effect) => return Err(PolicyError::new(format!("Invalid effect: {}", effect.unwrap_or_default()))),
        };
        let principals = match (one_of(object, "Principal", "NotPrincipal")?, bucket) {
            (Some((value, all_but)), Some(_)) => Some(Principals::parse(value, all_but)?),
            (None, None) => None,
            (None, Some(_)) => return Err(PolicyError::missing("Principal")),
            (Some(_), None) => return Err(PolicyError::new("Policy document should not specify a principal.")),
        };
        let (actions, not_action) =
            one_of(object, "Action", "NotAction")?.ok_or_else(|| PolicyError::missing("Action"))?;
        let (resources, not_resource) =
            one_of(object, "Resource", "NotResource")?.ok_or_else(|| PolicyError::missing("Resource"))?;
        let (actions, resources) = (strings(actions, "Action")?, strings(resources, "Resource")?);
        let action_patterns = actions.iter().map(|action| action_pattern(action)).collect::<Result<Vec<_>, _>>()?;
        let resource_patterns = resources
            .iter()
            .map(|resource| resource_pattern(resource, variables, bucket.filter(|_| !not_resource)))
            .collect::<Result<Vec<_>, _>>()?;
        if bucket.is_some() && !not_action && !not_resource {
            check_scopes(&action_patterns, &resources)?;
        }
        let conditions = match object.get("Condition") {
            None => Vec::new(),
            Some(block) => Condition::parse_all(block, variables)?,
        };
        Ok(Self {
            sid,
            allow,
            principals,
            actions: Patterns { patterns: action_patterns, all_but: not_action },
            resources: Patterns { patterns: resource_patterns, all_but: not_resource },
            conditions,
        })
    }
}

/// The one of two fields that is there, and whether it is the second.
fn one_of<'v>(
    object: &'v Map<String, Value>,
    field: &str,
    not_field: &str,
) -> Result<Option<(&'v Value, bool)>, PolicyError> {
    match (object.get(field), object.get(not_field)) {
        (Some(value), None) => Ok(Some((value, false))),
        (None, Some(value)) => Ok(Some((value, true))),
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(PolicyError::new(format!("Statement cannot have both {field} and {not_field}"))),
    }
}

fn strings(value: &Value, field: &str) -> Result<Vec<String>, PolicyError> {
    let values = match value {
        Value::Array(values) => values.as_slice(),
        one => std::slice::from_ref(one),
    };
    let strings: Option<Vec<_>> = values.iter().map(|value| value.as_str().map(str::to_owned)).collect();
    match strings {
        Some(strings) if !strings.is_empty() => Ok(strings),
        Some(_) => Err(PolicyError::missing(field)),
        None => Err(PolicyError::new("Invalid policy syntax.")),
    }
}

/// An action of S3, or a pattern that some action of S3 fits.
fn action_pattern(action: &str) -> Result<Pattern, PolicyError> {
    let invalid = || PolicyError::with_detail("Policy has invalid action", action);
    let pattern = Pattern::parse(action, false).map_err(|_| invalid())?;
    let is_known = action == "*" || actions::all().any(|(known, _)| pattern.matches(&known, &NoContext, true));
    if is_known { Ok(pattern) } else { Err(invalid()) }
}

/// A resource of S3, and of the bucket when one is given.
fn resource_pattern(resource: &str, variables: bool, bucket: Option<&str>) -> Result<Pattern, PolicyError> {
    let invalid = || PolicyError::with_detail("Policy has invalid resource", resource);
    let name = if resource == "*" { resource } else { name_of(resource).ok_or_else(invalid)? };
    if let Some(bucket) = bucket {
        let of_bucket = name.split('/').next().unwrap_or_default();
        let pattern = Pattern::parse(of_bucket, false).map_err(|_| invalid())?;
        if !of_bucket.contains("${") && !pattern.matches(bucket, &NoContext, false) {
            return Err(invalid());
        }
    }
    let whole = if resource == "*" { resource.to_owned() } else { format!("{ARN_PREFIX}{name}") };
    Pattern::parse(&whole, variables).map_err(|_| invalid())
}

/// What stands after `arn:aws:s3:::`. A star for region or account is as good as nothing: names of
/// buckets are unique.
fn name_of(resource: &str) -> Option<&str> {
    let mut parts = resource.splitn(6, ':');
    let head = [parts.next()?, parts.next()?, parts.next()?];
    let place = [parts.next()?, parts.next()?];
    let any = |part: &str| part.is_empty() || part == "*";
    let name = parts.next()?;
    (head == ["arn", "aws", "s3"] && place.into_iter().all(any) && !name.is_empty()).then_some(name)
}

/// Refuses an action that can be done to none of the resources.
fn check_scopes(patterns: &[Pattern], resources: &[String]) -> Result<(), PolicyError> {
    let is_object = |resource: &String| resource.contains('/') || resource.contains('*');
    let is_bucket = |resource: &String| !resource.contains('/') || resource.ends_with(":*/*");
    let (objects, buckets) = (resources.iter().any(is_object), resources.iter().any(is_bucket));
    for pattern in patterns {
        let applies = |(action, scope): &(String, Scope)| {
            pattern.matches(action, &NoContext, true)
                && match scope {
                    Scope::Object => objects,
                    Scope::Bucket => buckets,
                    Scope::Service => false,
                }
        };
        if pattern.fixed().as_deref() != Some("*") && !actions::all().any(|action| applies(&action)) {
            return Err(PolicyError::new("Action does not apply to any resource(s) in statement"));
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "document_tests.rs"]
mod tests;
