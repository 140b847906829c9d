//! Code-execution policies, at most one per workspace.

use decision::policy::{Preference, WorkspacePolicy};

use super::{Repository, RepositoryError};

const TABLE: &str = "code_execution_policies";

/// What a policy says. Whatever is `None` narrows nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyFields {
    /// Off refuses every run here; the provider's own runs are not touched.
    pub enabled: bool,
    /// The pin: who runs declared code, whatever a header says.
    pub executor: Option<Preference>,
    /// Most model calls with the tool per request.
    pub max_iterations: Option<u32>,
    /// Most seconds one execution may take.
    pub exec_timeout_s: Option<u32>,
    /// Told to the model when the request's own declaration has no hint.
    pub default_purpose_hint: Option<String>,
    /// Image of new sandbox sessions.
    pub image: Option<String>,
    /// Tool kinds that may run.
    pub tools: Option<Vec<String>>,
}

/// A policy as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPolicy {
    /// Whom it applies to.
    pub workspace_id: String,
    /// What it says.
    pub fields: PolicyFields,
    /// When it was first set, milliseconds since the epoch.
    pub created_at_ms: i64,
    /// When it was last set.
    pub updated_at_ms: i64,
}

type PolicyRow =
    (String, i64, Option<String>, Option<i64>, Option<i64>, Option<String>, Option<String>, Option<String>, i64, i64);

const SELECT: &str = "SELECT workspace_id, enabled, executor, max_iterations, exec_timeout_s, default_purpose_hint, \
                      image, tools, created_at_ms, updated_at_ms FROM code_execution_policies";

impl Repository {
    /// The policy of a workspace, if it has one.
    pub async fn policy(&self, workspace_id: &str) -> Result<Option<StoredPolicy>, RepositoryError> {
        let row = sqlx::query_as::<_, PolicyRow>(sqlx::AssertSqlSafe(format!("{SELECT} WHERE workspace_id = $1")))
            .bind(workspace_id)
            .fetch_optional(&self.pool)
            .await?;
        row.map(StoredPolicy::try_from).transpose()
    }

    /// Every policy.
    pub async fn policies(&self) -> Result<Vec<StoredPolicy>, RepositoryError> {
        let rows = sqlx::query_as::<_, PolicyRow>(SELECT).fetch_all(&self.pool).await?;
        rows.into_iter().map(StoredPolicy::try_from).collect()
    }

    /// Replaces the policy of a workspace, whole. `false` if there is no such workspace.
    pub async fn put_policy(&self, workspace_id: &str, fields: &PolicyFields) -> Result<bool, RepositoryError> {
        let mut change = self.begin_change().await?;
        let done = sqlx::query(
            "INSERT INTO code_execution_policies (workspace_id, enabled, executor, max_iterations, exec_timeout_s, \
             default_purpose_hint, image, tools, created_at_ms, updated_at_ms) \
             SELECT id, $2, $3, $4, $5, $6, $7, $8, $9, $9 FROM workspaces WHERE id = $1 \
             ON CONFLICT (workspace_id) DO UPDATE SET enabled = excluded.enabled, executor = excluded.executor, \
             max_iterations = excluded.max_iterations, exec_timeout_s = excluded.exec_timeout_s, \
             default_purpose_hint = excluded.default_purpose_hint, image = excluded.image, tools = excluded.tools, \
             updated_at_ms = excluded.updated_at_ms",
        )
        .bind(workspace_id)
        .bind(i64::from(fields.enabled))
        .bind(fields.executor.map(Preference::word))
        .bind(fields.max_iterations.map(i64::from))
        .bind(fields.exec_timeout_s.map(i64::from))
        .bind(fields.default_purpose_hint.as_deref())
        .bind(fields.image.as_deref())
        .bind(fields.tools.as_ref().map(|tools| serde_json::json!(tools).to_string()))
        .bind(self.clock.now_ms())
        .execute(&mut *change)
        .await?;
        change.commit().await?;
        Ok(done.rows_affected() == 1)
    }

    /// Removes the policy of a workspace; none is fine.
    pub async fn delete_policy(&self, workspace_id: &str) -> Result<(), RepositoryError> {
        let mut change = self.begin_change().await?;
        sqlx::query("DELETE FROM code_execution_policies WHERE workspace_id = $1")
            .bind(workspace_id)
            .execute(&mut *change)
            .await?;
        change.commit().await
    }
}

impl From<&PolicyFields> for WorkspacePolicy {
    fn from(fields: &PolicyFields) -> Self {
        Self {
            pin: fields.executor,
            enabled: fields.enabled,
            max_iterations: fields.max_iterations,
            exec_timeout_s: fields.exec_timeout_s,
            purpose_hint: fields.default_purpose_hint.clone(),
            image: fields.image.clone(),
            tools: fields.tools.clone(),
        }
    }
}

impl TryFrom<PolicyRow> for StoredPolicy {
    type Error = RepositoryError;

    fn try_from(row: PolicyRow) -> Result<Self, Self::Error> {
        let (workspace_id, enabled, executor, iterations, timeout, hint, image, tools, created_at_ms, updated_at_ms) =
            row;
        let corrupt = |column| RepositoryError::Corrupt { table: TABLE, column, id: workspace_id.clone() };
        let small = |value: Option<i64>, column| {
            value.map(|number| u32::try_from(number).map_err(|_| corrupt(column))).transpose()
        };
        let executor =
            executor.map(|word| Preference::parse(word.as_bytes()).ok_or_else(|| corrupt("executor"))).transpose()?;
        let tools = tools.map(|json| serde_json::from_str(&json).map_err(|_| corrupt("tools"))).transpose()?;
        let fields = PolicyFields {
            enabled: enabled != 0,
            executor,
            max_iterations: small(iterations, "max_iterations")?,
            exec_timeout_s: small(timeout, "exec_timeout_s")?,
            default_purpose_hint: hint,
            image,
            tools,
        };
        Ok(Self { workspace_id, fields, created_at_ms, updated_at_ms })
    }
}
