import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.net.HttpURLConnection;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import java.util.stream.IntStream;
import software.amazon.awssdk.core.async.AsyncRequestBody;
import software.amazon.awssdk.core.async.AsyncResponseTransformer;
import software.amazon.awssdk.core.sync.RequestBody;
import software.amazon.awssdk.services.s3.S3AsyncClient;
import software.amazon.awssdk.services.s3.S3Client;
import software.amazon.awssdk.services.s3.model.BucketVersioningStatus;
import software.amazon.awssdk.services.s3.model.ChecksumAlgorithm;
import software.amazon.awssdk.services.s3.model.ChecksumMode;
import software.amazon.awssdk.services.s3.model.HeadObjectResponse;
import software.amazon.awssdk.services.s3.model.NoSuchBucketException;
import software.amazon.awssdk.services.s3.model.NoSuchKeyException;
import software.amazon.awssdk.services.s3.model.ObjectIdentifier;
import software.amazon.awssdk.services.s3.model.S3Exception;
import software.amazon.awssdk.services.s3.presigner.S3Presigner;
import software.amazon.awssdk.services.s3.S3Configuration;
import software.amazon.awssdk.transfer.s3.S3TransferManager;

/** The AWS SDK for Java v2 as it comes; each step says what it exercises, the first that fails ends the program. */
final class JavaSdk {
    private static final int MIB = 1 << 20;

    private interface Step {
        void run() throws Exception;
    }

    private final String bucket;
    private final Path folder;
    private final S3Client s3;
    private final S3AsyncClient async;

    private JavaSdk(String bucket, Path folder, S3Client s3, S3AsyncClient async) {
        this.bucket = bucket;
        this.folder = folder;
        this.s3 = s3;
        this.async = async;
    }

    public static void main(String[] arguments) throws Exception {
        // AWS_ENDPOINT_URL names the server; a name of a bucket is no host on a loopback address.
        try (S3Client s3 = S3Client.builder().forcePathStyle(true).build();
                S3AsyncClient async = S3AsyncClient.builder().forcePathStyle(true).multipartEnabled(true).build()) {
            JavaSdk sdk = new JavaSdk(arguments[0], Path.of(arguments[1]), s3, async);
            s3.createBucket(b -> b.bucket(sdk.bucket));
            Map<String, Step> steps = new LinkedHashMap<>();
            steps.put("an object with metadata and tags", sdk::object);
            steps.put("streams of known and unknown length", sdk::streams);
            steps.put("checksums by every algorithm", sdk::checksums);
            steps.put("the transfer manager: files, folders, copies, a pause", sdk::transfers);
            steps.put("presigned requests", sdk::presigned);
            steps.put("pages of a listing", sdk::pages);
            steps.put("versions and a deletion of many", sdk::versions);
            steps.put("conditional writes and errors by their types", sdk::failures);
            steps.put("waiters", sdk::waiters);
            for (Map.Entry<String, Step> step : steps.entrySet()) {
                try {
                    step.getValue().run();
                } catch (Exception | AssertionError failure) {
                    throw new IllegalStateException(step.getKey(), failure);
                }
                System.out.println(step.getKey());
            }
        }
    }

    private static void same(Object expected, Object actual) {
        if (!expected.equals(actual)) {
            throw new AssertionError("expected " + expected + ", was " + actual);
        }
    }

    private static byte[] noise(int size) {
        byte[] content = new byte[size];
        new Random(size).nextBytes(content);
        return content;
    }

    private byte[] read(String key) {
        return s3.getObjectAsBytes(b -> b.bucket(bucket).key(key)).asByteArray();
    }

    private void check(String key, byte[] content) {
        same(true, Arrays.equals(content, read(key)));
    }

    private void put(String key, byte[] content) {
        s3.putObject(b -> b.bucket(bucket).key(key), RequestBody.fromBytes(content));
    }

    private void object() {
        byte[] content = noise(3 * MIB);
        s3.putObject(
                b -> b.bucket(bucket).key("a key/ü+%").metadata(Map.of("a", "1")).tagging("t=1").contentType("text/plain"),
                RequestBody.fromBytes(content));
        check("a key/ü+%", content);
        HeadObjectResponse head = s3.headObject(b -> b.bucket(bucket).key("a key/ü+%"));
        same(Map.of("a", "1"), head.metadata());
        same("text/plain", head.contentType());
        same(1, s3.getObjectTagging(b -> b.bucket(bucket).key("a key/ü+%")).tagSet().size());
        s3.copyObject(b -> b.sourceBucket(bucket).sourceKey("a key/ü+%").destinationBucket(bucket).destinationKey("copy"));
        check("copy", content);
        byte[] part = s3.getObjectAsBytes(b -> b.bucket(bucket).key("copy").range("bytes=-10")).asByteArray();
        same(true, Arrays.equals(part, Arrays.copyOfRange(content, content.length - 10, content.length)));
        put("empty", new byte[0]);
        same(0, read("empty").length);
    }

    private void streams() {
        byte[] content = noise(5 * MIB + 1);
        s3.putObject(
                b -> b.bucket(bucket).key("known"),
                RequestBody.fromInputStream(new ByteArrayInputStream(content), content.length));
        check("known", content);
        try (var threads = new Threads()) {
            async.putObject(
                            b -> b.bucket(bucket).key("unknown"),
                            AsyncRequestBody.fromInputStream(
                                    c -> c.inputStream(new ByteArrayInputStream(content)).executor(threads.pool)))
                    .join();
        }
        check("unknown", content);
    }

    private static final class Threads implements AutoCloseable {
        final java.util.concurrent.ExecutorService pool = Executors.newSingleThreadExecutor();

        @Override
        public void close() {
            pool.shutdown();
        }
    }

    private void checksums() {
        for (ChecksumAlgorithm algorithm : List.of(
                ChecksumAlgorithm.CRC32, ChecksumAlgorithm.SHA1, ChecksumAlgorithm.SHA256)) {
            s3.putObject(
                    b -> b.bucket(bucket).key("sum").checksumAlgorithm(algorithm), RequestBody.fromBytes(noise(1000)));
            same(1000, s3.getObjectAsBytes(b -> b.bucket(bucket).key("sum").checksumMode(ChecksumMode.ENABLED))
                    .asByteArray().length);
        }
    }

    private void transfers() throws IOException {
        byte[] content = noise(20 * MIB + 7);
        Path source = Files.createDirectories(folder.resolve("up")).resolve("large");
        Files.write(source, content);
        Files.write(folder.resolve("up/small"), noise(10));
        try (S3TransferManager manager = S3TransferManager.builder().s3Client(async).build()) {
            manager.uploadFile(b -> b.source(source).putObjectRequest(r -> r.bucket(bucket).key("file")))
                    .completionFuture().join();
            same(true, s3.headObject(b -> b.bucket(bucket).key("file")).eTag().contains("-"));
            Path target = folder.resolve("down");
            manager.downloadFile(b -> b.destination(target).getObjectRequest(r -> r.bucket(bucket).key("file")))
                    .completionFuture().join();
            same(true, Arrays.equals(content, Files.readAllBytes(target)));
            manager.copy(b -> b.copyObjectRequest(r -> r.sourceBucket(bucket).sourceKey("file")
                    .destinationBucket(bucket).destinationKey("moved"))).completionFuture().join();
            check("moved", content);
            same(0, manager.uploadDirectory(b -> b.source(folder.resolve("up")).bucket(bucket).s3Prefix("folder"))
                    .completionFuture().join().failedTransfers().size());
            Path back = folder.resolve("back");
            same(0, manager.downloadDirectory(b -> b.bucket(bucket).destination(back)
                    .listObjectsV2RequestTransformer(l -> l.prefix("folder/"))).completionFuture().join()
                    .failedTransfers().size());
            same(content.length, Files.readAllBytes(back.resolve("large")).length);
            var paused = manager.uploadFile(b -> b.source(source).putObjectRequest(r -> r.bucket(bucket).key("paused")))
                    .pause();
            manager.resumeUploadFile(paused).completionFuture().join();
            check("paused", content);
        }
    }

    private void presigned() throws IOException {
        try (S3Presigner presigner = S3Presigner.builder()
                .endpointOverride(URI.create(System.getenv("AWS_ENDPOINT_URL")))
                .serviceConfiguration(S3Configuration.builder().pathStyleAccessEnabled(true).build()).build()) {
            var put = presigner.presignPutObject(b -> b.signatureDuration(Duration.ofMinutes(5))
                    .putObjectRequest(r -> r.bucket(bucket).key("by url").contentType("text/plain")));
            HttpURLConnection up = (HttpURLConnection) put.url().openConnection();
            up.setRequestMethod("PUT");
            up.setDoOutput(true);
            put.httpRequest().headers().forEach((name, values) -> values.forEach(value -> up.setRequestProperty(name, value)));
            up.getOutputStream().write("by url".getBytes());
            same(200, up.getResponseCode());
            var get = presigner.presignGetObject(b -> b.signatureDuration(Duration.ofMinutes(5))
                    .getObjectRequest(r -> r.bucket(bucket).key("by url").responseContentType("image/png")));
            HttpURLConnection down = (HttpURLConnection) get.url().openConnection();
            same("by url", new String(down.getInputStream().readAllBytes()));
            same("image/png", down.getContentType());
        }
    }

    private void pages() {
        IntStream.range(0, 25).forEach(n -> put("page/" + n % 5 + "/" + n, new byte[] {1}));
        long keys = s3.listObjectsV2Paginator(b -> b.bucket(bucket).prefix("page/").maxKeys(7)).contents().stream().count();
        long prefixes = s3.listObjectsV2Paginator(b -> b.bucket(bucket).prefix("page/").delimiter("/").maxKeys(2))
                .commonPrefixes().stream().count();
        same(25L, keys);
        same(5L, prefixes);
    }

    private void versions() {
        s3.putBucketVersioning(b -> b.bucket(bucket)
                .versioningConfiguration(c -> c.status(BucketVersioningStatus.ENABLED)));
        put("v", noise(1));
        put("v", noise(2));
        s3.deleteObject(b -> b.bucket(bucket).key("v"));
        var listed = s3.listObjectVersionsPaginator(b -> b.bucket(bucket).prefix("v").maxKeys(1));
        List<ObjectIdentifier> found = listed.versions().stream()
                .map(v -> ObjectIdentifier.builder().key(v.key()).versionId(v.versionId()).build()).toList();
        same(2, found.size());
        same(1L, listed.deleteMarkers().stream().count());
        same(2, s3.deleteObjects(b -> b.bucket(bucket).delete(d -> d.objects(found))).deleted().size());
    }

    private void failures() {
        try {
            read("none");
            throw new AssertionError("a key that is not there was read");
        } catch (NoSuchKeyException expected) {
            same(404, expected.statusCode());
        }
        try {
            s3.listObjectsV2(b -> b.bucket(bucket + "-none"));
            throw new AssertionError("a bucket that is not there was listed");
        } catch (NoSuchBucketException expected) {
            same(404, expected.statusCode());
        }
        put("once", noise(1));
        try {
            s3.putObject(b -> b.bucket(bucket).key("once").ifNoneMatch("*"), RequestBody.fromString("again"));
            throw new AssertionError("an object was overwritten");
        } catch (S3Exception expected) {
            same("PreconditionFailed", expected.awsErrorDetails().errorCode());
        }
    }

    private void waiters() {
        CompletableFuture<?> there = async.waiter().waitUntilObjectExists(b -> b.bucket(bucket).key("late"));
        put("late", noise(1));
        there.join();
        s3.waiter().waitUntilBucketExists(b -> b.bucket(bucket));
        s3.waiter().waitUntilBucketNotExists(b -> b.bucket(bucket + "-none"));
        same(1, async.getObject(b -> b.bucket(bucket).key("late"), AsyncResponseTransformer.toBytes())
                .join().asByteArray().length);
    }
}
