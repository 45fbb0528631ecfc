// The AWS SDK for Go v2 against one endpoint, as it comes: the default checksums, signatures and retries. Each step says
// what it exercises; the first that fails ends the program with its reason.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/feature/s3/manager"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
)

const mib = 1 << 20

// client is the SDK's own, and the bucket that every step works in.
type client struct {
	*s3.Client
	bucket *string
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	if err := run(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, bucket string) error {
	settings, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return err
	}
	// AWS_ENDPOINT_URL names the server; a name of a bucket is no host on a loopback address.
	c := client{s3.NewFromConfig(settings, func(o *s3.Options) { o.UsePathStyle = true }), &bucket}
	if _, err := c.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: c.bucket}); err != nil {
		return fmt.Errorf("create bucket: %w", err)
	}
	steps := []struct {
		name string
		do   func(context.Context) error
	}{
		{"an object with metadata and tags", c.object},
		{"an upload and a download in parts", c.parts},
		{"presigned requests", c.presigned},
		{"pages of a listing", c.pages},
		{"versions and a deletion of many", c.versions},
		{"conditional writes", c.conditions},
		{"errors by their types", c.failures},
		{"waiters", c.waiters},
	}
	for _, step := range steps {
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		fmt.Println(step.name)
	}
	return nil
}

func noise(size int) []byte {
	content := make([]byte, size)
	rand.New(rand.NewSource(int64(size))).Read(content)
	return content
}

func (c client) put(ctx context.Context, key string, content []byte) (*s3.PutObjectOutput, error) {
	return c.PutObject(ctx, &s3.PutObjectInput{Bucket: c.bucket, Key: &key, Body: bytes.NewReader(content)})
}

func (c client) holds(ctx context.Context, key string, content []byte) error {
	got, err := c.GetObject(ctx, &s3.GetObjectInput{Bucket: c.bucket, Key: &key})
	if err != nil {
		return err
	}
	defer got.Body.Close()
	read, err := io.ReadAll(got.Body)
	if err != nil {
		return err
	}
	if !bytes.Equal(read, content) {
		return fmt.Errorf("%s holds other bytes", key)
	}
	return nil
}

func (c client) object(ctx context.Context) error {
	key, content := "a key/ü+1 %", noise(70_000)
	_, err := c.PutObject(ctx, &s3.PutObjectInput{
		Bucket:   c.bucket,
		Key:      &key,
		Body:     bytes.NewReader(content),
		Metadata: map[string]string{"colour": "blue"},
		Tagging:  aws.String("a=1&b=2"),
	})
	if err != nil {
		return err
	}
	if err := c.holds(ctx, key, content); err != nil {
		return err
	}
	head, err := c.HeadObject(ctx, &s3.HeadObjectInput{Bucket: c.bucket, Key: &key, ChecksumMode: types.ChecksumModeEnabled})
	if err != nil {
		return err
	}
	if head.Metadata["colour"] != "blue" || head.ChecksumCRC32 == nil {
		return fmt.Errorf("metadata %v, checksum %v", head.Metadata, head.ChecksumCRC32)
	}
	tags, err := c.GetObjectTagging(ctx, &s3.GetObjectTaggingInput{Bucket: c.bucket, Key: &key})
	if err != nil || len(tags.TagSet) != 2 {
		return fmt.Errorf("tags %v: %w", tags, err)
	}
	part, err := c.GetObject(ctx, &s3.GetObjectInput{Bucket: c.bucket, Key: &key, Range: aws.String("bytes=10-19")})
	if err != nil {
		return err
	}
	defer part.Body.Close()
	if read, err := io.ReadAll(part.Body); err != nil || !bytes.Equal(read, content[10:20]) {
		return fmt.Errorf("a range of %d bytes: %w", len(read), err)
	}
	return nil
}

// An upload whose length nobody knows goes up with trailing checksums.
func (c client) parts(ctx context.Context) error {
	key, content := "parts", noise(12*mib+7)
	uploader := manager.NewUploader(c.Client)
	stream := struct{ io.Reader }{bytes.NewReader(content)}
	if _, err := uploader.Upload(ctx, &s3.PutObjectInput{Bucket: c.bucket, Key: &key, Body: stream}); err != nil {
		return err
	}
	read := manager.NewWriteAtBuffer(nil)
	if _, err := manager.NewDownloader(c.Client).Download(ctx, read, &s3.GetObjectInput{Bucket: c.bucket, Key: &key}); err != nil {
		return err
	}
	if !bytes.Equal(read.Bytes(), content) {
		return errors.New("other bytes came back")
	}
	copied := "copied"
	source := *c.bucket + "/" + key
	if _, err := c.CopyObject(ctx, &s3.CopyObjectInput{Bucket: c.bucket, Key: &copied, CopySource: &source}); err != nil {
		return err
	}
	return c.holds(ctx, copied, content)
}

func (c client) presigned(ctx context.Context) error {
	key, content := "by url", []byte("by url")
	signer := s3.NewPresignClient(c.Client)
	put, err := signer.PresignPutObject(ctx, &s3.PutObjectInput{Bucket: c.bucket, Key: &key})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, put.Method, put.URL, bytes.NewReader(content))
	if err != nil {
		return err
	}
	for name, values := range put.SignedHeader {
		if name != "Host" && name != "Content-Length" {
			request.Header[name] = values
		}
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("PUT by URL: %s", answer.Status)
	}
	get, err := signer.PresignGetObject(ctx, &s3.GetObjectInput{Bucket: c.bucket, Key: &key})
	if err != nil {
		return err
	}
	answer, err = http.Get(get.URL)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if read, err := io.ReadAll(answer.Body); err != nil || !bytes.Equal(read, content) {
		return fmt.Errorf("GET by URL: %s: %w", answer.Status, err)
	}
	return nil
}

func (c client) pages(ctx context.Context) error {
	for number := range 25 {
		if _, err := c.put(ctx, fmt.Sprintf("page/%02d/k", number), nil); err != nil {
			return err
		}
	}
	found, pages := 0, 0
	listing := s3.NewListObjectsV2Paginator(c.Client, &s3.ListObjectsV2Input{
		Bucket: c.bucket, Prefix: aws.String("page/"), Delimiter: aws.String("/"), MaxKeys: aws.Int32(10),
	})
	for listing.HasMorePages() {
		page, err := listing.NextPage(ctx)
		if err != nil {
			return err
		}
		found, pages = found+len(page.CommonPrefixes), pages+1
	}
	if found != 25 || pages != 3 {
		return fmt.Errorf("%d prefixes on %d pages", found, pages)
	}
	return nil
}

func (c client) versions(ctx context.Context) error {
	_, err := c.PutBucketVersioning(ctx, &s3.PutBucketVersioningInput{
		Bucket:                  c.bucket,
		VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled},
	})
	if err != nil {
		return err
	}
	key := "versioned"
	for number := range 3 {
		if _, err := c.put(ctx, key, []byte{byte(number)}); err != nil {
			return err
		}
	}
	deleted, err := c.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: c.bucket, Key: &key})
	if err != nil || !aws.ToBool(deleted.DeleteMarker) {
		return fmt.Errorf("no marker: %w", err)
	}
	listed, err := c.ListObjectVersions(ctx, &s3.ListObjectVersionsInput{Bucket: c.bucket, Prefix: &key})
	if err != nil || len(listed.Versions) != 3 || len(listed.DeleteMarkers) != 1 {
		return fmt.Errorf("versions %v: %w", listed, err)
	}
	var gone []types.ObjectIdentifier
	for _, version := range listed.Versions {
		gone = append(gone, types.ObjectIdentifier{Key: &key, VersionId: version.VersionId})
	}
	gone = append(gone, types.ObjectIdentifier{Key: &key, VersionId: listed.DeleteMarkers[0].VersionId})
	done, err := c.DeleteObjects(ctx, &s3.DeleteObjectsInput{Bucket: c.bucket, Delete: &types.Delete{Objects: gone}})
	if err != nil || len(done.Deleted) != 4 || len(done.Errors) != 0 {
		return fmt.Errorf("deleted %v: %w", done, err)
	}
	return nil
}

func (c client) conditions(ctx context.Context) error {
	key := "conditional"
	first, err := c.put(ctx, key, []byte("one"))
	if err != nil {
		return err
	}
	_, err = c.PutObject(ctx, &s3.PutObjectInput{Bucket: c.bucket, Key: &key, IfNoneMatch: aws.String("*")})
	if !is(err, "PreconditionFailed") {
		return fmt.Errorf("If-None-Match on a key that is there: %w", err)
	}
	body := bytes.NewReader([]byte("two"))
	_, err = c.PutObject(ctx, &s3.PutObjectInput{Bucket: c.bucket, Key: &key, Body: body, IfMatch: first.ETag})
	return err
}

func is(err error, code string) bool {
	var failure smithy.APIError
	return errors.As(err, &failure) && failure.ErrorCode() == code
}

func (c client) failures(ctx context.Context) error {
	key := "none"
	_, err := c.GetObject(ctx, &s3.GetObjectInput{Bucket: c.bucket, Key: &key})
	var noKey *types.NoSuchKey
	if !errors.As(err, &noKey) {
		return fmt.Errorf("a key that is not there: %w", err)
	}
	_, err = c.HeadObject(ctx, &s3.HeadObjectInput{Bucket: c.bucket, Key: &key})
	var notFound *types.NotFound
	if !errors.As(err, &notFound) {
		return fmt.Errorf("its head: %w", err)
	}
	return nil
}

func (c client) waiters(ctx context.Context) error {
	key := "awaited"
	if _, err := c.put(ctx, key, nil); err != nil {
		return err
	}
	there := s3.NewObjectExistsWaiter(c.Client)
	if err := there.Wait(ctx, &s3.HeadObjectInput{Bucket: c.bucket, Key: &key}, 10*time.Second); err != nil {
		return err
	}
	absent := "never"
	gone := s3.NewObjectNotExistsWaiter(c.Client)
	return gone.Wait(ctx, &s3.HeadObjectInput{Bucket: c.bucket, Key: &absent}, 10*time.Second)
}
