// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// imageContent is new content for an image, and its digest.
func imageContent(t *testing.T) (content []byte, digest string) {
	t.Helper()
	content = make([]byte, 3000)
	_, _ = rand.Read(content) // never fails
	sum := sha256.Sum256(content)
	return content, hex.EncodeToString(sum[:])
}

// newImage makes a boot resource without content; it is removed when the case ends.
func (m *maas) newImage(t *testing.T, pairs ...string) *answer {
	t.Helper()
	got := m.create(t, "boot-resources/", withDefaults(pairs, "name", uniqueName(), "architecture", m.architecture(t))...)
	if got.status == http.StatusCreated {
		var image object
		got.into(t, &image)
		path := "boot-resources/" + image.id("id") + "/"
		t.Cleanup(func() {
			if m.get(t, path).status == http.StatusOK {
				m.delete(t, path).gone(t)
			}
		})
	}
	return got
}

// createdImage is the boot resource of a 201, and its only file.
func createdImage(t *testing.T, got *answer) (image, file object) {
	t.Helper()
	got.wants(t, http.StatusCreated).into(t, &image)
	return image, onlyFile(t, image)
}

// onlyFile is the file of the only set that has one.
func onlyFile(t *testing.T, image object) (found object) {
	t.Helper()
	for version := range image.part("sets") {
		for name := range image.part("sets", version, "files") {
			if found != nil {
				t.Fatalf("the image has several files: %v", image)
			}
			found = image.part("sets", version, "files", name)
			if found.str("filename") != name || image.str("sets", version, "version") != version {
				t.Errorf("file %q of set %q is %v", name, version, found)
			}
		}
	}
	if found == nil {
		t.Fatalf("the image has no file: %v", image)
	}
	return found
}

// upload appends a piece to a file.
func (m *maas) upload(t *testing.T, file object, piece []byte) *answer {
	t.Helper()
	path := strings.TrimPrefix(file.str("upload_uri"), "/MAAS/api/2.0/")
	return m.doOnce(t, request{method: http.MethodPut, path: path, content: piece})
}

func (m *maas) image(t *testing.T, image object) object {
	t.Helper()
	return m.get(t, "boot-resources/"+image.id("id")+"/").object(t)
}

// BootResourcesHandler.create, BootResourceFileUploadHandler.update and boot_resource_file_to_dict in
// maasserver/api/boot_resources.py.
func TestImageIsUploadedInPieces(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		content, digest := imageContent(t)
		name := uniqueName()
		image, file := createdImage(t, m.newImage(t, "name", "custom/"+name, "title", "A title", "sha256", digest,
			"size", fmt.Sprint(len(content)), "filetype", "ddgz", "base_image", "ubuntu/"+m.series(t)))
		if m.facts.imageNamesAsSent {
			name = "custom/" + name
		}
		if image.str("name") != name || image.str("type") != "Uploaded" || image.str("title") != "A title" || image.str("subarches") != "generic" {
			t.Errorf("it is %v", image)
		}
		if _, shown := image["base_image"]; shown != m.facts.imagesOnDisk {
			t.Errorf("the base image is shown: %v, want %v", shown, m.facts.imagesOnDisk)
		}
		if file.str("sha256") != digest || file.int("size") != len(content) || file.flag("complete") || file.num("progress") != 0 ||
			file.str("filetype") != "root-dd.gz" || file.str("filename") != "root-dd.gz" {
			t.Errorf("the new file is %v", file)
		}
		for at, piece := range [][]byte{content[:1000], content[1000:1500], content[1500:]} {
			got := m.upload(t, file, piece).wants(t, http.StatusOK)
			if string(got.body) != "OK" {
				t.Errorf("piece %d: %q", at, got.body)
			}
		}
		m.await(t, "all region controllers to have it", func() (bool, string) {
			file = onlyFile(t, m.image(t, image))
			return file.flag("complete"), fmt.Sprint(file)
		})
		for _, key := range []string{"upload_uri", "progress"} {
			if value, shown := file[key]; shown {
				t.Errorf("%s of a complete file: %v", key, value)
			}
		}
		m.doOnce(t, request{method: http.MethodPut, path: "boot-resources/" + image.id("id") + "/upload/999999/", content: content[:10]}).
			refuses(t, http.StatusNotFound, "No BootResourceFile matches the given query.")
	})
}

// LargeFile.progress in maasserver/models/largefile.py, until 3.4 the inverse of what it is meant to be;
// BootResourceFile.sync_progress in maasserver/models/bootresourcefile.py, a part of what all region controllers will have.
func TestProgressTellsHowMuchIsThere(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		content, digest := imageContent(t)
		image, file := createdImage(t, m.newImage(t, "sha256", digest, "size", fmt.Sprint(len(content))))
		m.upload(t, file, content[:1000]).wants(t, http.StatusOK)
		want := 3.0
		if m.facts.imagesOnDisk {
			want = 100.0 * 1000 / float64(3000*len(m.get(t, "regioncontrollers/").list(t)))
		}
		if got := onlyFile(t, m.image(t, image)).num("progress"); got != want {
			t.Errorf("progress %v, want %v", got, want)
		}
	})
}

// BootResourceFileUploadHandler.update in maasserver/api/boot_resources.py. What is refused is rolled back, so that a
// piece can be sent again.
func TestPieceThatDoesNotFitIsRefused(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		content, digest := imageContent(t)
		image, file := createdImage(t, m.newImage(t, "sha256", digest, "size", fmt.Sprint(len(content))))
		m.upload(t, file, []byte{}).refuses(t, http.StatusBadRequest, "Missing data.")
		m.upload(t, file, content[:2000]).wants(t, http.StatusOK)
		before := onlyFile(t, m.image(t, image)).num("progress")
		other := append([]byte{content[2000] + 1}, content[2001:]...)
		m.upload(t, file, other).refuses(t, http.StatusBadRequest, "Saved content does not match given SHA256 value.")
		m.upload(t, file, content).refuses(t, http.StatusBadRequest, "Too much data received.")
		if after := onlyFile(t, m.image(t, image)).num("progress"); after != before {
			t.Errorf("progress %v after refusals, want %v", after, before)
		}
		if m.facts.imageNamesAsSent {
			return // The file on the disk is not rolled back, and now lacks what was there.
		}
		m.upload(t, file, content[2000:]).wants(t, http.StatusOK)
		m.upload(t, file, content[:1]).refuses(t, http.StatusBadRequest, "Cannot upload to a complete file.")
	})
}

// BootResourceForm.save in maasserver/forms: the set of the new file replaces the files of the others, unless keep_old is
// sent, which MAAS does not document.
func TestNewFileOfAnImageReplacesTheOthers(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		content, digest := imageContent(t)
		name := uniqueName()
		image, file := createdImage(t, m.newImage(t, "name", name, "sha256", digest, "size", fmt.Sprint(len(content))))
		m.upload(t, file, content).wants(t, http.StatusOK)
		_, another := imageContent(t)
		next, file := createdImage(t, m.newImage(t, "name", name, "sha256", another, "size", "3000"))
		if next.id("id") != image.id("id") || file.str("sha256") != another || file.flag("complete") {
			t.Errorf("it is %v with the file %v, want image %s with the new file alone", next, file, image.id("id"))
		}
		kept := m.newImage(t, "name", name, "sha256", digest, "size", fmt.Sprint(len(content)), "keep_old", "true")
		var both object
		kept.wants(t, http.StatusCreated).into(t, &both)
		files := 0
		for version := range both.part("sets") {
			files += len(both.part("sets", version, "files"))
		}
		if files != 2 {
			t.Errorf("%d files with keep_old, want 2: %v", files, both)
		}
	})
}

// LargeFileManager.get_file in maasserver/models/largefile.py, until 3.4: content that MAAS has, in whatever image, is not
// sent again; a part of it is completed. From 3.5 on each file is a file of its own.
func TestContentThatMAASHas(t *testing.T) {
	eachWith(t, []need{imagesNamedAnew}, func(t *testing.T, m *maas) {
		content, digest := imageContent(t)
		size := fmt.Sprint(len(content))
		_, file := createdImage(t, m.newImage(t, "sha256", digest, "size", size))
		m.upload(t, file, content[:1000]).wants(t, http.StatusOK)
		_, second := createdImage(t, m.newImage(t, "sha256", digest, "size", size))
		if told := second.num("progress") != 0; told == m.facts.imagesOnDisk {
			t.Errorf("the second image begins with %v", second)
		}
		m.upload(t, file, content[1000:]).wants(t, http.StatusOK)
		_, third := createdImage(t, m.newImage(t, "sha256", digest, "size", size))
		if third.flag("complete") == m.facts.imagesOnDisk {
			t.Errorf("the third image begins with %v", third)
		}
		m.newImage(t, "sha256", digest, "size", "1").refuses(t, http.StatusBadRequest, "File already exists with sha256 that is of different size.")
	})
}

// BootResourceForm in maasserver/forms.
func TestBadImageIsRefused(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		_, digest := imageContent(t)
		for name, tc := range map[string]struct {
			pairs       []string
			field, says string
		}{
			"no name":            {[]string{"name", ""}, "name", "This field is required."},
			"reserved name":      {[]string{"name", "ubuntu"}, "name", "ubuntu is a reserved name"},
			"reserved release":   {[]string{"name", "custom/" + "centos9"}, "name", "centos9 is a reserved name"},
			"unknown system":     {[]string{"name", "plan9/fourth"}, "name", "Unsupport operating system plan9"},
			"no architecture":    {[]string{"architecture", ""}, "architecture", "This field is required."},
			"bad architecture":   {[]string{"architecture", "vax/generic"}, "architecture", "'vax/generic' is not a valid architecture."},
			"half architecture":  {[]string{"architecture", "amd64"}, "architecture", "'amd64' is not a valid architecture."},
			"bad type":           {[]string{"filetype", "qcow2"}, "filetype", "Select a valid choice. qcow2 is not one of the available choices."},
			"short digest":       {[]string{"sha256", "abc"}, "sha256", "at least 64 characters (it has 3)."},
			"no digest":          {[]string{"sha256", ""}, "sha256", "This field is required."},
			"no size":            {[]string{"size", ""}, "size", "This field is required."},
			"bad size":           {[]string{"size", "many"}, "size", "Enter a whole number."},
			"bad form of base":   {[]string{"base_image", "noble"}, "base_image", "a base image must follow the format: <osystem>/<series>"},
			"base is no Linux":   {[]string{"base_image", "windows/win2022"}, "base_image", "custom images require a valid non-custom OS type base image"},
			"base is no release": {[]string{"base_image", "ubuntu/zealous"}, "base_image", "please select a valid base image OS and version"},
			"base is custom":     {[]string{"base_image", "custom/a"}, "base_image", "custom images require a valid non-custom OS type base image"},
		} {
			if m.facts.imageNamesAsSent && name == "reserved release" {
				continue // Only the bare name is reserved.
			}
			t.Run(name, func(t *testing.T) {
				m.newImage(t, withDefaults(tc.pairs, "sha256", digest, "size", "3000")...).refusesField(t, tc.field, tc.says)
			})
		}
		m.newImage(t, "name", "custom/a/b", "sha256", digest, "size", "3000").
			refuses(t, http.StatusInternalServerError, "too many values to unpack")
	})
}

// admin_method in maasserver/api/support.py; check_permission from 3.8 on.
func TestImagesAreChangedByAdministrators(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		plain := m.asPlainUser(t)
		content, digest := imageContent(t)
		image, file := createdImage(t, m.newImage(t, "sha256", digest, "size", fmt.Sprint(len(content))))
		says := "This method is reserved for admin users."
		if m.facts.imageNamesAsSent {
			says = "can_edit_boot_entities"
		}
		for _, got := range []*answer{
			plain.newImage(t, "sha256", digest, "size", "3000"), plain.upload(t, file, content), plain.delete(t, "boot-resources/"+image.id("id")+"/"),
		} {
			got.refuses(t, http.StatusForbidden, says)
		}
		if !has(plain.get(t, "boot-resources/").list(t), "name", image.str("name")) {
			t.Error("everybody may see images")
		}
	})
}

// BootResourceHandler.delete in maasserver/api/boot_resources.py, which looks a resource up without get_object_or_404.
func TestDeletionOfAnUnknownImageIsAnError(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		_, digest := imageContent(t)
		image, _ := createdImage(t, m.newImage(t, "sha256", digest, "size", "3000"))
		path := "boot-resources/" + image.id("id") + "/"
		m.delete(t, path).gone(t)
		m.get(t, path).refuses(t, http.StatusNotFound, "No BootResource matches the given query.")
		m.delete(t, path).refuses(t, http.StatusInternalServerError, "BootResource matching query does not exist.")
	})
}

// Synced images are not for uploads.
func TestUploadToASyncedImageIsRefused(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		_, digest := imageContent(t)
		_, file := createdImage(t, m.newImage(t, "sha256", digest, "size", "3000"))
		id := strings.Split(strings.TrimSuffix(file.str("upload_uri"), "/"), "/")
		synced := find(m.anyImages(t), func(o object) bool { return o.str("type") == "Synced" })
		if synced == nil {
			lacks(t, "no image is imported")
		}
		m.doOnce(t, request{method: http.MethodPut, content: []byte("x"), path: "boot-resources/" + synced.id("id") + "/upload/" + id[len(id)-1] + "/"}).
			refuses(t, http.StatusForbidden, "Cannot upload to a resource of type: 0.")
	})
}

// list_all_usable_releases in maasserver/utils/osystems.py and Node.validate_bootresource_exists_for_action ask for a boot
// resource of the name, not for its files: MAAS begins a deployment that cannot end well.
func TestIncompleteImageIsDeployedInVain(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		_, digest := imageContent(t)
		image, _ := createdImage(t, m.newImage(t, "sha256", digest, "size", "3000"))
		got := m.deploy(t, m.spare(t), "distro_series", "custom/"+image.str("name")).object(t)
		if got.str("status_name") != "Deploying" || got.str("osystem") != "custom" {
			t.Errorf("%s with %s, want Deploying with custom", got.str("status_name"), got.str("osystem"))
		}
	})
}

// clean_name of BootResourceForm in maasserver/forms keeps custom/ from 3.8 on, and get_resource_for in
// models/bootresource.py finds a custom image by its bare name alone.
func TestImageThatKeepsCustomInItsNameIsNotDeployed(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		_, digest := imageContent(t)
		name, spare := "custom/"+uniqueName(), m.spare(t)
		createdImage(t, m.newImage(t, "name", name, "sha256", digest, "size", "3000"))
		got := m.deploy(t, spare, "distro_series", name)
		if !m.facts.imageNamesAsSent {
			got.object(t)
			return
		}
		got.refuses(t, http.StatusBadRequest, "Deployment operating system "+name+" is unavailable for "+spare.str("architecture"))
		if after := m.machine(t, spare.str("system_id")); after.str("status_name") != "Ready" {
			t.Errorf("%s after the refusal, want Ready", after.str("status_name"))
		}
	})
}
