/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_virt.c - libvirt on libuv's loop, with its driver that needs no libvirtd: events, lists, tries again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "virt.h"
#include "virt_loop.h"

#define UUID "6695eb01-f6a4-8304-79aa-97f2502e193f" /* of the one domain that test:///default has */

static uv_loop_t loop; /* libvirt has one for ever */
static unsigned connected, lost, ended;
static char why[128];

static void on_connected(void *user)
{
	connected++;
	uv_stop(&loop);
}

static void on_lost(const char *text, void *user)
{
	lost++;
	snprintf(why, sizeof(why), "%s", text);
	uv_stop(&loop);
}

static void on_ended(void *user)
{
	ended++;
	uv_stop(&loop);
}

static void on_patience(uv_timer_t *timer)
{
	fail_msg("nothing happens");
}

/* Until a handler stops it. */
static void turn(void)
{
	static uv_timer_t patience;

	uv_timer_init(&loop, &patience);
	uv_timer_start(&patience, on_patience, 60000, 0);
	uv_run(&loop, UV_RUN_DEFAULT);
	uv_timer_stop(&patience);
}

static const struct virt_handlers handlers = {on_connected, on_lost, on_ended, NULL};

static int setup_all(void **state)
{
	virt_silence();
	return uv_loop_init(&loop) || virt_loop_init(&loop);
}

static void expect_domain(virConnectPtr connection, bool is_active)
{
	struct virt_domains domains = {0};

	assert_int_equal(virt_list_domains(connection, &domains), 0);
	assert_int_equal(domains.count, 1);
	assert_null(virt_find_domain(&domains, "6695eb01-f6a4-8304-79aa-97f2502e1930"));
	const struct virt_domain *domain = virt_find_domain(&domains, UUID);
	assert_non_null(domain);
	assert_string_equal(domain->name, "test");
	assert_true(domain->is_active == is_active);
	virt_free_domains(&domains);
	assert_true(domains.count == 0 && domains.items == NULL);
}

/* A domain's end comes through libvirt's timer, which another thread armed. */
static void destroy(uv_work_t *work)
{
	virDomainPtr domain = virDomainLookupByName(work->data, "test");

	assert_non_null(domain);
	assert_int_equal(virDomainDestroy(domain), 0);
	virDomainFree(domain);
}

static void on_destroyed(uv_work_t *work, int status)
{
}

static void test_events(void **state)
{
	static struct virt virt;
	static uv_work_t work;

	assert_int_equal(virt_open(&virt, &loop, "test:///default", &handlers), 0);
	assert_null(virt_dup_connection(&virt));
	turn();
	assert_true(connected == 1 && lost == 0 && ended == 0);
	virConnectPtr connection = virt_dup_connection(&virt);
	assert_non_null(connection);
	expect_domain(connection, true);
	/* It is read only; the driver's state is the process's, so somebody else of it ends the domain. */
	virConnectPtr writer = virConnectOpen("test:///default");
	assert_non_null(writer);
	work.data = writer;
	assert_int_equal(uv_queue_work(&loop, &work, destroy, on_destroyed), 0);
	turn();
	assert_true(connected == 1 && lost == 0 && ended == 1);
	expect_domain(connection, false);
	virConnectClose(writer);
	virConnectClose(connection);
}

/* Said once, tried for ever. */
static void test_no_libvirtd(void **state)
{
	static struct virt virt;

	connected = lost = 0;
	assert_int_equal(
		virt_open(&virt, &loop, "qemu+unix:///system?socket=/nonexistent/hpz/sock", &handlers), 0);
	turn();
	assert_true(connected == 0 && lost == 1);
	assert_non_null(strstr(why, "/nonexistent/hpz/sock"));
	assert_null(virt_dup_connection(&virt));
	/* The next try is due; one more failure is not said. */
	uint64_t delay_ms = virt.delay_ms;
	uv_timer_start(&virt.timer, virt.timer.timer_cb, 0, 0);
	while (virt.delay_ms == delay_ms)
		assert_true(uv_run(&loop, UV_RUN_ONCE));
	assert_true(virt.delay_ms == 2 * delay_ms && lost == 1 && connected == 0);
	/* And then it is there. */
	virt.uri = "test:///default";
	uv_timer_start(&virt.timer, virt.timer.timer_cb, 0, 0);
	turn();
	assert_true(connected == 1 && lost == 1 && virt.delay_ms < delay_ms);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_events),
		cmocka_unit_test(test_no_libvirtd),
	};

	return cmocka_run_group_tests(tests, setup_all, NULL);
}
