//! Requests to STS on the S3 port: read whole, verified, answered. What they mean is in
//! [`crate::ops::sts`].

use super::{RequestRecord, S3Service};
use crate::{
    auth::{Look, Principal, Users},
    ops::{
        body::{AnswerBody, RequestBody},
        request::Answer,
        sts::{Asker, act},
    },
    peers::Holder,
};
use http::request::Parts;
use http_body_util::{BodyExt as _, Limited};
use s3_wire::{
    ErrorCode, S3Error, Target, response,
    sts::{StsAction, StsError, StsErrorCode},
};
use std::{net::IpAddr, time::SystemTime};

/// The most bytes of a form: a policy and its names, percent-encoded, are far shorter.
const FORM_BYTES_MAX: usize = 64 << 10;

impl S3Service {
    /// Answers a request to STS.
    pub(super) async fn answer_sts(
        &self,
        peer: Option<IpAddr>,
        parts: &Parts,
        target: &Target,
        body: &mut RequestBody,
        record: &mut RequestRecord,
    ) -> Answer {
        let request_id = record.ids().request_id.clone();
        match self.sts(peer, parts, target, body, record).await {
            Ok(answer) => answer,
            Err(error) => {
                let code = error.code;
                let document = response::document(code.status(), &error.request_id(request_id));
                let mut answer = document.map(AnswerBody::from);
                answer.extensions_mut().insert(code);
                answer
            }
        }
    }

    async fn sts(
        &self,
        peer: Option<IpAddr>,
        parts: &Parts,
        target: &Target,
        body: &mut RequestBody,
        record: &mut RequestRecord,
    ) -> Result<Answer, StsError> {
        // Who sends the form is known once it is there, so it counts for its peer until then.
        let refused = |error: S3Error| StsError::from(&error);
        self.take_share(&Holder::of(None, peer), None, record).map_err(refused)?;
        let form = Limited::new(&mut *body, FORM_BYTES_MAX).collect().await;
        let form = form.map_err(|error| match error.downcast::<S3Error>() {
            Ok(error) => refused(*error),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => {
                refused(S3Error::new(ErrorCode::MaxMessageLengthExceeded))
            }
            Err(_) => refused(S3Error::new(ErrorCode::IncompleteBody)),
        })?;
        let form = form.to_bytes();
        let users = self.shared.users();
        let signed = self.authenticate_sts(&users, parts, target, &form);
        let principal = self.slow_down_failures(peer, signed).await.map_err(refused)?.ok_or_else(|| {
            StsError::new(StsErrorCode::MissingAuthenticationToken, "Request is missing Authentication Token")
        })?;
        record.user(principal.user().map(|user| user.name.as_str()).unwrap_or_default());
        let action = StsAction::parse(&target.query, &form)?;
        record.operation_of_sts(action.name());
        let request_id = record.ids().request_id.clone();
        let document = act(&Asker { principal, users, request_id }, action, SystemTime::now())?;
        Ok(document)
    }

    /// Who signed; `None` when nobody did.
    fn authenticate_sts(
        &self,
        users: &Users,
        parts: &Parts,
        target: &Target,
        form: &[u8],
    ) -> Result<Option<Principal>, S3Error> {
        let now = SystemTime::now();
        let look = Look::new(users, now);
        let who = self.shared.verifier.authenticate_sts(parts, target, form, now, &look);
        let labels = match &who {
            Ok(None) => ["ok", "anonymous"],
            Ok(Some(_)) => ["ok", "sts"],
            Err(error) => ["refused", error.code().as_str()],
        };
        self.shared.metrics.auth_total.with_label_values(&labels).inc();
        Ok(who?.map(|_| look.principal()))
    }
}
