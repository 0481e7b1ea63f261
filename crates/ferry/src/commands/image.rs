//! `ferry image`: the images of this node.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use ferry_cluster::container_runtime::EMBEDDED_SOCKET;
use ferry_cri::{CriClient, Status, v1};

use crate::arguments::{ImageCommand, ImageOptions};

pub fn run(options: &ImageOptions) -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "images of a node need root; run it as root or with sudo");
    let run_dir = std::path::absolute(&options.folders.run_dir)?;
    let sockets = [EMBEDDED_SOCKET, "containerd.sock"].map(|name| run_dir.join(name));
    let socket = sockets.iter().find(|socket| socket.exists());
    let socket = socket.with_context(|| format!("no cluster runs with --run-dir {}", run_dir.display()))?;
    let embedded = socket.ends_with(EMBEDDED_SOCKET);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (client, _) = CriClient::connect(&socket.to_string_lossy()).await?;
        match &options.command {
            ImageCommand::List => list(&client).await,
            ImageCommand::Pull { images } => pull(&client, images).await,
            ImageCommand::Import { archives } => {
                ensure!(
                    embedded,
                    "this node runs on containerd, which takes archives itself: ctr --namespace k8s.io images import"
                );
                import(&client, archives).await
            }
            ImageCommand::Remove { images } => remove(&client, images).await,
        }
    })
}

fn spec(image: &str) -> Option<v1::ImageSpec> {
    Some(v1::ImageSpec { image: image.to_owned(), ..v1::ImageSpec::default() })
}

/// What the runtime says, without the number of gRPC.
fn told(status: Status) -> anyhow::Error {
    anyhow::Error::msg(status.message().to_owned())
}

async fn list(client: &CriClient) -> Result<()> {
    let images = client.list_images(v1::ListImagesRequest::default()).await.map_err(told)?.images;
    let mut rows: Vec<[String; 4]> = images.iter().flat_map(rows).collect();
    rows.sort();
    rows.insert(0, ["IMAGE", "ID", "SIZE", "PINNED"].map(str::to_owned));
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2)];
    for [image, id, size, pinned] in &rows {
        println!("{image:<0$}   {id:<1$}   {size:>2$}   {pinned}", widths[0], widths[1], widths[2]);
    }
    Ok(())
}

/// A row for each name of an image.
fn rows(image: &v1::Image) -> Vec<[String; 4]> {
    let id: String = image.id.trim_start_matches("sha256:").chars().take(12).collect();
    let names = if image.repo_tags.is_empty() { &image.repo_digests } else { &image.repo_tags };
    let none = ["<none>".to_owned()];
    let names = if names.is_empty() { &none[..] } else { names };
    let pinned = if image.pinned { "yes" } else { "" };
    names.iter().map(|name| [name.clone(), id.clone(), size(image.size), pinned.to_owned()]).collect()
}

/// In units of a thousand, as registries show sizes.
fn size(bytes: u64) -> String {
    let tenths = |unit: u64| (bytes / (unit / 10)).to_string();
    let shown = |tenths: String, unit: &str| {
        let (whole, rest) = tenths.split_at(tenths.len().saturating_sub(1));
        format!("{}.{rest} {unit}", if whole.is_empty() { "0" } else { whole })
    };
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => shown(tenths(1_000), "kB"),
        1_000_000..1_000_000_000 => shown(tenths(1_000_000), "MB"),
        _ => shown(tenths(1_000_000_000), "GB"),
    }
}

async fn pull(client: &CriClient, images: &[String]) -> Result<()> {
    for image in images {
        let request = v1::PullImageRequest { image: spec(image), ..v1::PullImageRequest::default() };
        client.pull_image(request).await.map_err(told)?;
        println!("pulled {image}");
    }
    Ok(())
}

async fn import(client: &CriClient, archives: &[std::path::PathBuf]) -> Result<()> {
    for archive in archives {
        let path = std::path::absolute(archive)?;
        ensure!(Path::new(&path).is_file(), "there is no file {}", archive.display());
        let names = client.load_archive(&path).await.map_err(told)?.image_ref;
        println!("imported {names}");
    }
    Ok(())
}

async fn remove(client: &CriClient, images: &[String]) -> Result<()> {
    for image in images {
        let request = v1::ImageStatusRequest { image: spec(image), verbose: false };
        // Removing what is not there is no error to a runtime, but a mistake of whoever types it.
        if client.image_status(request).await.map_err(told)?.image.is_none() {
            bail!("there is no image {image}");
        }
        client.remove_image(v1::RemoveImageRequest { image: spec(image) }).await.map_err(told)?;
        println!("removed {image}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_have_a_row_for_each_name() {
        let image = v1::Image {
            id: format!("sha256:{}", "ab".repeat(32)),
            repo_tags: vec!["docker.io/library/a:1".into(), "docker.io/library/a:2".into()],
            size: 1_234_567,
            pinned: true,
            ..Default::default()
        };
        let shown = rows(&image);
        assert_eq!(shown.len(), 2);
        assert_eq!(shown[1], ["docker.io/library/a:2", "abababababab", "1.2 MB", "yes"].map(str::to_owned));
        assert_eq!(rows(&v1::Image { id: "x".into(), ..Default::default() })[0][0], "<none>");
        assert_eq!(
            [size(0), size(999), size(1_000), size(45_600), size(2_500_000_000)],
            ["0 B", "999 B", "1.0 kB", "45.6 kB", "2.5 GB"]
        );
    }
}
