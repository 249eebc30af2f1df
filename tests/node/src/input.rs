//! Owns: what a run's cluster is fed: MachineConfigs, a token, a pointer.
//! Given a cluster, gives the name of a pool that is rendered, and a pointer config as the installer would have left it.
//! Never: talks to the API but through the cluster's own command line.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::Value;

use crate::cluster::Admin;
use crate::fixture;

/// Puts the project's own worker MachineConfigs in and has them rendered. Gives the pool's name.
///
/// # Errors
/// When the API refuses them, or the renderer takes longer than 30 s.
pub fn worker(cluster: &Admin, scratch: &Path) -> anyhow::Result<String> {
    let objects = fixture::machine_configs(&fixture::worker_dir())?;
    let documents: Vec<String> = objects.iter().map(Value::to_string).collect();
    let file = scratch.join("machine-configs.yaml");
    fs::write(&file, documents.join("\n---\n")).context("writing the MachineConfigs")?;
    let file = file.to_str().context("the scratch folder's name is not UTF-8")?;
    cluster.command(&["apply", "-f", file])?; // waits for the renderer
    Ok("worker".to_owned())
}

/// Puts two rendered MachineConfigs of the user's own in. The pool is the one in their name, `rendered-<pool>-<hash>`.
///
/// # Errors
/// When a file is not a rendered MachineConfig, or the two are not of one pool.
pub fn rendered(cluster: &Admin, pre: &Path, post: &Path) -> anyhow::Result<String> {
    let name = |path: &Path| -> anyhow::Result<String> {
        let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let object: Value = serde_norway::from_str(&text).map_err(|_| {
            anyhow::anyhow!("{} is neither JSON nor YAML; expected a rendered MachineConfig", path.display())
        })?;
        let name = object["metadata"]["name"].as_str();
        Ok(name
            .with_context(|| {
                format!("{} has no metadata.name; expected a rendered MachineConfig", path.display())
            })?
            .to_owned())
    };
    let (pre_name, post_name) = (name(pre)?, name(post)?);
    let pool = pool_of(&post_name).with_context(|| {
        format!("{}: {post_name} is not a rendered name; expected rendered-<pool>-<hash>", post.display())
    })?;
    anyhow::ensure!(
        pool_of(&pre_name) == Some(pool),
        "{} ({pre_name}) and {} ({post_name}) are not of one pool",
        pre.display(),
        post.display()
    );
    let (pre, post) = (absolute(pre)?, absolute(post)?);
    cluster.command(&["rendered", "--pool", pool, "--pre", &pre, "--post", &post])?;
    Ok(pool.to_owned())
}

fn pool_of(rendered: &str) -> Option<&str> {
    let (pool, hash) = rendered.strip_prefix("rendered-")?.rsplit_once('-')?;
    (!pool.is_empty() && !hash.is_empty()).then_some(pool)
}

fn absolute(path: &Path) -> anyhow::Result<String> {
    let path = fs::canonicalize(path).with_context(|| format!("finding {}", path.display()))?;
    path.to_str().map(str::to_owned).with_context(|| format!("{} is not UTF-8", path.display()))
}

/// Makes a token, and leaves the pointer that carries it where a platform would keep it: outside the node's root.
///
/// # Errors
/// When there is no such pool, or the scratch folder cannot be written.
pub fn pointer(cluster: &Admin, pool: &str, scratch: &Path) -> anyhow::Result<PathBuf> {
    cluster.command(&["token", "new", "--pool", pool])?; // what it prints is the token: dropped unread
    let pointer = cluster.command(&["pointer", "--pool", pool])?;
    let path = scratch.join("pointer.ign");
    fs::write(&path, pointer).context("writing the pointer")?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).context("closing the pointer")?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::pool_of;

    #[test]
    fn the_pool_is_what_stands_between_prefix_and_hash() {
        for (name, pool) in [
            ("rendered-worker-dbbd64892a81cfef42ce59ec5dfdfeec", Some("worker")),
            ("rendered-gpu-infra-0a1b", Some("gpu-infra")),
            ("rendered-worker", None),
            ("rendered--x", None),
            ("99-worker-ssh", None),
        ] {
            assert_eq!(pool_of(name), pool, "{name}");
        }
    }
}
